"""What will run: points, priorities, schedules, slots, arguments."""
