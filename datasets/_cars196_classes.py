"""Class names of Cars196 in the order of the official ids, for layouts whose folders have names without ids.

Makes are sorted but models within a make are not, so sorted names give the same halves but other ids. A slash, which no
folder name can hold, is a hyphen here.
"""

NAMES = [
    f"{make} {model.strip()}"
    for make, models in (
        ("AM General", "Hummer SUV 2000"),
        (
            "Acura",
            "RL Sedan 2012, TL Sedan 2012, TL Type-S 2008, TSX Sedan 2012, Integra Type R 2001, ZDX Hatchback 2012",
        ),
        (
            "Aston Martin",
            "V8 Vantage Convertible 2012, V8 Vantage Coupe 2012, Virage Convertible 2012, Virage Coupe 2012",
        ),
        (
            "Audi",
            (
                "RS 4 Convertible 2008, A5 Coupe 2012, TTS Coupe 2012, R8 Coupe 2012, V8 Sedan 1994, 100 Sedan 1994, "
                "100 Wagon 1994"
            ),
        ),
        (
            "Audi",
            (
                "TT Hatchback 2011, S6 Sedan 2011, S5 Convertible 2012, S5 Coupe 2012, S4 Sedan 2012, S4 Sedan 2007, "
                "TT RS Coupe 2012"
            ),
        ),
        (
            "BMW",
            (
                "ActiveHybrid 5 Sedan 2012, 1 Series Convertible 2012, 1 Series Coupe 2012, 3 Series Sedan 2012, 3 "
                "Series Wagon 2012"
            ),
        ),
        (
            "BMW",
            (
                "6 Series Convertible 2007, X5 SUV 2007, X6 SUV 2012, M3 Coupe 2012, M5 Sedan 2010, M6 Convertible "
                "2010, X3 SUV 2012"
            ),
        ),
        ("BMW", "Z4 Convertible 2012"),
        (
            "Bentley",
            (
                "Continental Supersports Conv. Convertible 2012, Arnage Sedan 2009, Mulsanne Sedan 2011, Continental "
                "GT Coupe 2012"
            ),
        ),
        ("Bentley", "Continental GT Coupe 2007, Continental Flying Spur Sedan 2007"),
        ("Bugatti", "Veyron 16.4 Convertible 2009, Veyron 16.4 Coupe 2009"),
        ("Buick", "Regal GS 2012, Rainier SUV 2007, Verano Sedan 2012, Enclave SUV 2012"),
        ("Cadillac", "CTS-V Sedan 2012, SRX SUV 2012, Escalade EXT Crew Cab 2007"),
        ("Chevrolet", "Silverado 1500 Hybrid Crew Cab 2012, Corvette Convertible 2012, Corvette ZR1 2012"),
        (
            "Chevrolet",
            (
                "Corvette Ron Fellows Edition Z06 2007, Traverse SUV 2012, Camaro Convertible 2012, HHR SS 2010, "
                "Impala Sedan 2007"
            ),
        ),
        (
            "Chevrolet",
            "Tahoe Hybrid SUV 2012, Sonic Sedan 2012, Express Cargo Van 2007, Avalanche Crew Cab 2012, Cobalt SS 2010",
        ),
        ("Chevrolet", "Malibu Hybrid Sedan 2010, TrailBlazer SS 2009, Silverado 2500HD Regular Cab 2012"),
        (
            "Chevrolet",
            "Silverado 1500 Classic Extended Cab 2007, Express Van 2007, Monte Carlo Coupe 2007, Malibu Sedan 2007",
        ),
        ("Chevrolet", "Silverado 1500 Extended Cab 2012, Silverado 1500 Regular Cab 2012"),
        (
            "Chrysler",
            (
                "Aspen SUV 2009, Sebring Convertible 2010, Town and Country Minivan 2012, 300 SRT-8 2010, Crossfire "
                "Convertible 2008"
            ),
        ),
        ("Chrysler", "PT Cruiser Convertible 2008"),
        ("Daewoo", "Nubira Wagon 2002"),
        ("Dodge", "Caliber Wagon 2012, Caliber Wagon 2007, Caravan Minivan 1997, Ram Pickup 3500 Crew Cab 2010"),
        (
            "Dodge",
            (
                "Ram Pickup 3500 Quad Cab 2009, Sprinter Cargo Van 2009, Journey SUV 2012, Dakota Crew Cab 2010, "
                "Dakota Club Cab 2007"
            ),
        ),
        (
            "Dodge",
            (
                "Magnum Wagon 2008, Challenger SRT8 2011, Durango SUV 2012, Durango SUV 2007, Charger Sedan 2012, "
                "Charger SRT-8 2009"
            ),
        ),
        ("Eagle", "Talon Hatchback 1998"),
        ("FIAT", "500 Abarth 2012, 500 Convertible 2012"),
        ("Ferrari", "FF Coupe 2012, California Convertible 2012, 458 Italia Convertible 2012, 458 Italia Coupe 2012"),
        ("Fisker", "Karma Sedan 2012"),
        (
            "Ford",
            (
                "F-450 Super Duty Crew Cab 2012, Mustang Convertible 2007, Freestar Minivan 2007, Expedition EL SUV "
                "2009, Edge SUV 2012"
            ),
        ),
        (
            "Ford",
            "Ranger SuperCab 2011, GT Coupe 2006, F-150 Regular Cab 2012, F-150 Regular Cab 2007, Focus Sedan 2007",
        ),
        ("Ford", "E-Series Wagon Van 2012, Fiesta Sedan 2012"),
        ("GMC", "Terrain SUV 2012, Savana Van 2012, Yukon Hybrid SUV 2012, Acadia SUV 2012, Canyon Extended Cab 2012"),
        ("Geo", "Metro Convertible 1993"),
        ("HUMMER", "H3T Crew Cab 2010, H2 SUT Crew Cab 2009"),
        ("Honda", "Odyssey Minivan 2012, Odyssey Minivan 2007, Accord Coupe 2012, Accord Sedan 2012"),
        (
            "Hyundai",
            "Veloster Hatchback 2012, Santa Fe SUV 2012, Tucson SUV 2012, Veracruz SUV 2012, Sonata Hybrid Sedan 2012",
        ),
        (
            "Hyundai",
            (
                "Elantra Sedan 2007, Accent Sedan 2012, Genesis Sedan 2012, Sonata Sedan 2012, Elantra Touring "
                "Hatchback 2012"
            ),
        ),
        ("Hyundai", "Azera Sedan 2012"),
        ("Infiniti", "G Coupe IPL 2012, QX56 SUV 2011"),
        ("Isuzu", "Ascender SUV 2008"),
        ("Jaguar", "XK XKR 2012"),
        ("Jeep", "Patriot SUV 2012, Wrangler SUV 2012, Liberty SUV 2012, Grand Cherokee SUV 2012, Compass SUV 2012"),
        (
            "Lamborghini",
            "Reventon Coupe 2008, Aventador Coupe 2012, Gallardo LP 570-4 Superleggera 2012, Diablo Coupe 2001",
        ),
        ("Land Rover", "Range Rover SUV 2012, LR2 SUV 2012"),
        ("Lincoln", "Town Car Sedan 2011"),
        ("MINI", "Cooper Roadster Convertible 2012"),
        ("Maybach", "Landaulet Convertible 2012"),
        ("Mazda", "Tribute SUV 2011"),
        ("McLaren", "MP4-12C Coupe 2012"),
        (
            "Mercedes-Benz",
            (
                "300-Class Convertible 1993, C-Class Sedan 2012, SL-Class Coupe 2009, E-Class Sedan 2012, S-Class "
                "Sedan 2012"
            ),
        ),
        ("Mercedes-Benz", "Sprinter Van 2012"),
        ("Mitsubishi", "Lancer Sedan 2012"),
        ("Nissan", "Leaf Hatchback 2012, NV Passenger Van 2012, Juke Hatchback 2012, 240SX Coupe 1998"),
        ("Plymouth", "Neon Coupe 1999"),
        ("Porsche", "Panamera Sedan 2012"),
        ("Ram", "C-V Cargo Van Minivan 2012"),
        ("Rolls-Royce", "Phantom Drophead Coupe Convertible 2012, Ghost Sedan 2012, Phantom Sedan 2012"),
        ("Scion", "xD Hatchback 2012"),
        ("Spyker", "C8 Convertible 2009, C8 Coupe 2009"),
        ("Suzuki", "Aerio Sedan 2007, Kizashi Sedan 2012, SX4 Hatchback 2012, SX4 Sedan 2012"),
        ("Tesla", "Model S Sedan 2012"),
        ("Toyota", "Sequoia SUV 2012, Camry Sedan 2012, Corolla Sedan 2012, 4Runner SUV 2012"),
        ("Volkswagen", "Golf Hatchback 2012, Golf Hatchback 1991, Beetle Hatchback 2012"),
        ("Volvo", "C30 Hatchback 2012, 240 Sedan 1993, XC90 SUV 2007"),
        ("smart", "fortwo Convertible 2012"),
    )
    for model in models.split(",")
]
_IDS = {name: number for number, name in enumerate(NAMES, start=1)}


def order(name: str) -> tuple[int, str]:
    """Sort key of a class folder's name: its official id; names that are none of the 196 come last, sorted."""
    return _IDS.get(name.replace("/", "-").replace("_", " "), len(NAMES) + 1), name
