"""What native code did when it crashed: registers, libraries, symbols, instructions. Never imports torch or numpy."""
