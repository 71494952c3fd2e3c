"""Callbacks that log runs to TensorBoard, Weights & Biases, MLflow and trackio, beside the record."""
