"""What a run will need and take, before it begins: tokens, capacity, time, money."""
