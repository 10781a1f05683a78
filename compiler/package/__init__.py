"""From a module of dispatch calls to a program: steps, memory and what is computed when weights are bound."""
