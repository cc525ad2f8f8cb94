"""What must hold for any bytes whatever: checked by hypothesis in the suite, and by atheris as long as one likes."""
