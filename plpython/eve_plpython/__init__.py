"""What PL/Python does for eve: schemas, plans, estimates. `emit.py` turns each module into SQL."""
