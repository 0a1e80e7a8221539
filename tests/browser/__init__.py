"""`liza web` in a chromium: what people see, press and type. One process runs these tests, and starts one browser."""
