"""What all of the library rests on: files, progress bars, random numbers, checks of numbers."""
