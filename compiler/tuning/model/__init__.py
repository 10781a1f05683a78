"""What schedules cost: features of many schedules at once from a workload and a target alone, and one model on them."""
