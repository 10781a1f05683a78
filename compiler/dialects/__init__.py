"""The tilewright dialect: attributes that carry decisions in the IR."""
