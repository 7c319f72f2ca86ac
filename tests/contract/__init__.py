"""What every engine must do, whatever it stores in."""
