"""Two runs side by side: settings, speed, money, and how their answers differ."""
