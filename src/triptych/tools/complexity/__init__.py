"""What layers and models cost: parameters, operations, paths and memory, computed and measured."""
