"""What people and programs see. Nothing is computed here: answers come from `whichgpu.api`."""
