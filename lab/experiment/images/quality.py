"""Reads lines "ORIGINAL<tab>WEBP" and prints for each its SSIMULACRA2, or an error.

Both are brought to sRGB by the profiles in them and turned as their EXIF says:
what a viewer would show is compared.
"""
import io
import sys
import tempfile

from PIL import Image, ImageCms, ImageOps
from ssimulacra2 import compute_ssimulacra2

SRGB = ImageCms.createProfile("sRGB")


def shown(name):
    picture = ImageOps.exif_transpose(Image.open(name))
    profile = picture.info.get("icc_profile")
    picture = picture.convert("RGB")
    if profile:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        picture = ImageCms.profileToProfile(picture, source, SRGB)
    file = tempfile.NamedTemporaryFile(suffix=".bmp")
    picture.save(file, "BMP")
    file.flush()
    return file


for line in sys.stdin:
    try:
        original, webp = line.rstrip("\n").split("\t")
        with shown(original) as a, shown(webp) as b:
            print("ok", compute_ssimulacra2(a.name, b.name), flush=True)
    except Exception as problem:
        print("error", repr(problem)[:300], flush=True)
