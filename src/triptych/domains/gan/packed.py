"""Packed images, which are those of all domains of images."""

from triptych.domains.pictures.packed import pack

__all__ = ["pack"]
