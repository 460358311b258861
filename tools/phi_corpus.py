"""Make English sentences with marked names, places and organisations from tools/phi_templates_en.txt and the training lists.

Half of the names are invented from letter triples of the lists, so that the tagger learns what a name looks like and where it
stands, not which names there are. The lists hold the training half only (tools/phi_lists.py).
"""

# ruff: noqa: E501
from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from medloop.privacy.phi import lists

HERE = Path(__file__).parent
CHOICE, SLOT = re.compile(r"\[([^\[\]]*)\]"), re.compile(r"<(\w+)>")
Span = tuple[int, int, str]

DRUGS = """aspirin ibuprofen metformin lisinopril amlodipine atorvastatin simvastatin omeprazole pantoprazole warfarin heparin
apixaban rivaroxaban clopidogrel insulin glipizide furosemide hydrochlorothiazide spironolactone losartan valsartan metoprolol
bisoprolol carvedilol digoxin amiodarone prednisone prednisolone dexamethasone albuterol salbutamol montelukast amoxicillin
azithromycin ciprofloxacin doxycycline ceftriaxone vancomycin fluconazole acyclovir oseltamivir sertraline fluoxetine citalopram
escitalopram venlafaxine amitriptyline mirtazapine quetiapine olanzapine risperidone haloperidol lithium lamotrigine valproate
carbamazepine levetiracetam gabapentin pregabalin morphine oxycodone tramadol codeine naproxen diclofenac acetaminophen
paracetamol allopurinol colchicine methotrexate hydroxychloroquine infliximab adalimumab rituximab trastuzumab pembrolizumab
tamoxifen letrozole cisplatin paclitaxel doxorubicin levothyroxine estradiol testosterone finasteride sildenafil tamsulosin
ondansetron metoclopramide loperamide cetirizine loratadine nitroglycerin adenosine ranitidine famotidine baclofen""".split()
EPONYMS = """Parkinson Alzheimer Foley Crohn Hodgkin Down Turner Marfan Huntington Graves Hashimoto Addison Cushing Raynaud Sjogren
Kawasaki Tourette Wilson Paget Bell Babinski Romberg Murphy Glasgow Apgar Holter Doppler Swan-Ganz Hickman Kaposi Ewing Burkitt
Wegener Behcet Meniere Guillain-Barre Charcot-Marie-Tooth Ehlers-Danlos Wolff-Parkinson-White Stevens-Johnson Wiskott-Aldrich
Tay-Sachs Gaucher Fabry Prader-Willi Angelman Rett Noonan Klinefelter Barrett Cheyne-Stokes Kussmaul Lachman Phalen Tinel Colles
Pott Dupuytren Peyronie Baker Heimlich Valsalva Trendelenburg Whipple Billroth Roux-en-Y Mantoux Schilling Coombs Gram Papanicolaou
Gleason Child-Pugh Wells Ranson Breslow Snellen Ishihara Likert Cox Fontan Fallot Eisenmenger Brugada Osler Janeway Virchow Koplik
Koch Lewy Creutzfeldt-Jakob Friedreich Duchenne Becker Lambert-Eaton Horner Argyll Bartter Gilbert Crigler-Najjar Budd-Chiari
Zollinger-Ellison Peutz-Jeghers Lynch Li-Fraumeni Wilms Reye Still Felty Caplan Goodpasture Alport Fanconi Conn Sheehan""".split()
KINDS = "syndrome disease disorder anemia palsy lymphoma sarcoma dystrophy ataxia tumor sign test catheter fracture".split()
PLAIN = """type 2 diabetes|hypertension|asthma|pneumonia|heart failure|migraine|breast cancer|acute lymphoblastic leukemia|stroke
|atrial fibrillation|chronic kidney disease|osteoarthritis|rheumatoid arthritis|lupus|psoriasis|eczema|epilepsy|depression|gout
|celiac disease|hepatitis B|tuberculosis|malaria|measles|cystic fibrosis|sickle cell disease|hemophilia A|muscular dystrophy
|neurofibromatosis type 1|retinitis pigmentosa|polycystic kidney disease|spinal muscular atrophy|multiple sclerosis
|amyotrophic lateral sclerosis|adrenoleukodystrophy|hypophosphatasia|phenylketonuria|galactosemia|hemochromatosis|sarcoidosis
|myasthenia gravis|preeclampsia|endometriosis|glaucoma|cataract|appendicitis|pancreatitis|diverticulitis|colorectal cancer
|melanoma|glioblastoma|osteosarcoma|craniosynostosis|holoprosencephaly|mucopolysaccharidosis type II|porphyria|thalassemia
|Waldenstrom macroglobulinemia|Hirschsprung disease|Legg-Calve-Perthes disease|von Willebrand disease|von Hippel-Lindau disease
|Leber congenital amaurosis|Lyme disease|West Nile virus|Rocky Mountain spotted fever|Lou Gehrig's disease|Hansen's disease"""
DISEASES = [part.strip() for part in PLAIN.replace("\n", "").split("|")]
BRANDS = """Tylenol Advil Motrin Aleve Lipitor Crestor Zocor Plavix Coumadin Eliquis Xarelto Zoloft Prozac Paxil Lexapro Celexa Effexor
Cymbalta Wellbutrin Abilify Seroquel Risperdal Zyprexa Lasix Norvasc Diovan Cozaar Toprol Coreg Ventolin Advair Singulair Flonase
Claritin Zyrtec Allegra Benadryl Nexium Prilosec Zantac Humira Enbrel Remicade Lantus Humalog Januvia Ozempic Glucophage Synthroid
Viagra Cialis Flomax Proscar Xanax Ativan Valium Ambien Klonopin Neurontin Lyrica Topamax Keppra Dilantin Tegretol Depakote Lamictal
Vicodin Percocet OxyContin Ultram Celebrex Voltaren Mobic Fosamax Boniva Premarin Botox Accutane Augmentin Zithromax Cipro Levaquin
Keflex Bactrim Diflucan Valtrex Tamiflu Avastin Herceptin Gleevec Keytruda Medrol Imitrex Zofran Reglan Imodium Lidoderm Elavil""".split()
HEADS = """poly micro macro hypo hyper neuro cardio nephro hepato gastro entero dermato osteo chondro myo angio cephalo encephalo oculo
opto cranio spondylo arthro broncho pneumo hemo leuko thrombo erythro lympho adeno lipo fibro sclero dys a brachy syn oligo pachy
ortho acro cysto uro colpo hystero oophoro mening myelo radiculo tracheo laryngo rhino oto kerato retino chorio amnio onco""".split()
MIDDLES = """gyr card nephr hepat gastr enter dermat oste chondr my angi cephal encephal dactyl crani spondyl arthr bronch pneum hem leuk
thromb cyt lymph aden lip fibr scler troph plas phalang gnath gloss cheil dont cyst ur metr mening myel neur kerat retin keton glyc""".split()
TAILS = """itis osis emia oma opathy algia ectomy otomy oscopy ia ic al ism uria plegia paresis penia cytosis genesis megaly plasty rrhea
rrhage stenosis trophy sclerosis malacia phobia lysis edema uric gram graphy ology ologist itic otic emic pathic""".split()
BODIES = """National Institute of {0} and {1}|National {0} Institute|American {0} Association|American Academy of {0}|American College of {0}
|{0} Society of America|European Society of {0}|International {0} Foundation|Society for {0} Medicine|Journal of {0}|{0} Research Network
|Center for {0} Control|World {0} Federation|Royal College of {0}|New England Journal of {0}|Annals of {0}|British {0} Society
|National Center for {0} Statistics|{0} Clinical Trials Group|Agency for {0} Research and Quality|Department of {0} and {1}""".replace(
    "\n", ""
).split("|")
FIELDS = (
    """Diabetes Heart Cancer Kidney Mental Allergy Neurology Cardiology Surgery Pediatrics Health Arthritis Stroke Lung Blood Eye
Medicine Neurological Disorders|Infectious Diseases|Digestive Diseases|Human Services|Child Health|Rare Diseases|Aging|Drug Abuse
|Genetics Obstetrics Radiology Oncology Dermatology Psychiatry Urology Nutrition Epilepsy Liver Asthma Pain Sleep""".replace(
        "\n", " "
    )
    .replace("|", "#")
    .split()
)
COMPLAINTS = """chest pain|cough and fever|abdominal pain|a headache|shortness of breath|dizziness|back pain|a fall|nausea and vomiting
|knee pain|anxiety|CHF and COPD|type 2 diabetes|acute appendicitis|weight loss|a rash|hip fracture|palpitations""".replace(
    "\n", ""
).split("|")
ROADS = "Street St St. Avenue Ave Road Rd Drive Lane Ln Boulevard Blvd Court Way Place Square Terrace Parkway Circle Trail Row Hill".split()
ABROAD = (
    "Rue {}",
    "Via {}",
    "Calle {}",
    "{}straße",
    "{}strasse",
    "{}weg",
    "{}gatan",
    "{}vägen",
    "{}katu",
    "{}vej",
    "{} utca",
    "{}straat",
    "Avenida {}",
    "Rua {}",
    "ul. {}",
    "{}gade",
    "{}tie",
    "{}laan",
    "Rue de {}",
    "Via {} {}",
    "{} út",
    "{}gasse",
    "{} u.",
    "Plaza {}",
    "Chemin {}",
    "{} {}",
)
GROUPS = "Inc Inc. Ltd Ltd. LLC Corp Corporation Group Holdings Partners Labs Systems Technologies Solutions Software Consulting Services Media Networks Analytics Data Health Capital Bank Foundation Industries International".split()
TRADES = "Data Open Smart Cloud Health Green Blue Net Info Geo Web Map Fast First Global Urban Civic Bright Energy Bio Market Credit Food Trip Search Think Social Home Lending Climate Loan Quant Weather Zip Local Real Open Public Social Point Path Hub".split()
CARE = "General Hospital|Medical Center|Health Clinic|Memorial Hospital|Community Hospital|Regional Medical Center|Children's Hospital|Clinic|Health Center|Hospital|Urgent Care|Family Practice|Surgery Center|Nursing Home".split(
    "|"
)


def invented(words: Sequence[str], rng: random.Random) -> Callable[[], str]:
    """A maker of words that look like these, from letter triples."""
    after: dict[str, list[str]] = {}
    for word in words:
        padded = f"^^{word}$"
        for i in range(len(padded) - 2):
            after.setdefault(padded[i : i + 2], []).append(padded[i + 2])

    def make() -> str:
        for _ in range(50):
            made = "^^"
            while made[-1] != "$" and len(made) < 16:
                made += rng.choice(after[made[-2:]])
            word = made[2:].strip("$")
            if 3 <= len(word) <= 13:
                return word
        return "Ada"

    return make


def capital(name: str) -> str:
    return re.sub(r"(?:^|(?<=[ \-'’]))[^\W\d_]", lambda m: m[0].upper(), name)


class Maker:
    """Sentences by the seed. `text()` gives one text of one to four sentences and its spans."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.first = [capital(n) for n in lists.lines("first_names.txt")]
        self.last = [capital(n) for n in lists.lines("surnames.txt")]
        self.towns = [capital(n) for n in lists.lines("towns.txt")]
        self.roads = [capital(n) for n in lists.lines("streets.txt")]
        self.countries = [capital(n) for n in lists.lines("countries.txt")]
        self.states = [capital(n) for n in lists.lines("states.txt")]
        self.new_first, self.new_last, self.new_town = (invented(w, self.rng) for w in (self.first, self.last, self.towns))
        self.new_brand = invented(BRANDS, self.rng)
        self.common = [word for word in sorted(lists.tiers()) if len(word) > 2 and word not in lists.word_lists()]
        text = (HERE / "phi_templates_en.txt").read_text(encoding="utf-8")
        phi, free = text.split("== free\n")
        self.phi = [line for line in phi.splitlines() if line and line[0] != "#"]
        self.free = free.splitlines()

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def some_first(self) -> str:
        return self.new_first() if self.rng.random() < 0.45 else self.rng.choice(self.first)

    def some_last(self) -> str:
        r = self.rng.random()
        if r < 0.04:
            return self.pick("van der ", "de ", "von ", "van ", "al-", "Mc", "O'", "St. ", "da ", "di ") + self.rng.choice(
                self.last
            )
        return self.new_last() if r < 0.5 else self.rng.choice(self.last)

    def some_town(self) -> str:
        r = self.rng.random()
        if r < 0.25:
            return (
                self.pick("Lake ", "North ", "South ", "New ", "East ", "Port ", "West ", "Saint-", "San ", "Bad ")
                + self.some_first()
            )
        if r < 0.4:
            return self.some_last() + self.pick(
                "ton",
                "ville",
                "burgh",
                "port",
                "mouth",
                "side",
                "berg",
                "stad",
                "dorf",
                "shire",
                "land",
                "view",
                "chester",
                "fort",
            )
        town = self.new_town() if r < 0.65 else self.rng.choice(self.towns)
        return town.upper() if self.rng.random() < 0.12 else town

    def number(self) -> str:
        return str(self.rng.randint(1, self.rng.choice((99, 999, 9999, 99999))))

    def zip(self) -> str:
        five = f"{self.rng.randint(0, 99999):05d}"
        return self.pick(five, five, five, five[:4], f"{five}-{self.rng.randint(0, 9999):04d}", f"SW{five[0]}A {five[1]}AA")

    def road_name(self) -> str:
        r = self.rng.random()
        return self.some_last() if r < 0.5 else self.some_first() if r < 0.8 else self.rng.choice(self.roads)

    def street(self) -> str:
        r = self.rng.random()
        if r < 0.5:
            return f"{self.number()} {self.road_name()} {self.rng.choice(ROADS)}"
        if r < 0.6:
            return f"{self.pick('P.O. Box', 'PO Box', 'Box')} {self.number()}"
        if r < 0.65:
            return f"{self.number()} {self.rng.choice(self.roads)}"
        form = self.rng.choice(ABROAD).format(self.road_name(), self.some_last())
        return f"{form} {self.number()}" if self.rng.random() < 0.7 else f"{self.number()} {form}"

    def flat(self) -> str:
        return f"{self.pick('Apt.', 'Suite', 'Apt', 'Unit', 'Flat', '#', 'Room')} {self.number()}"

    def address(self) -> str:
        r = self.rng.random()
        if r < 0.08:
            return f"{self.pick('USS', 'USNS', 'USNV', 'Unit')} {self.some_last()}\n{self.pick('FPO', 'DPO', 'APO')} {self.pick('AE', 'AA', 'AP')} {self.zip()}"
        if r < 0.2:
            return self.street()
        if r < 0.26:
            return f"the corner of {self.street()} and {self.some_last()} {self.rng.choice(ROADS)}"
        gap = self.pick(", ", ", ", " ", "\n", "\n ")
        parts = [self.street()]
        if self.rng.random() < 0.3:
            parts[0] = f"{self.rng.randint(1, 99):02d} {parts[0]}"
        if self.rng.random() < 0.45:
            parts.append(self.flat()) if self.rng.random() < 0.5 else parts.insert(0, f"{parts.pop()} {self.flat()}")
        parts.append(self.some_town())
        tail = self.rng.random()
        if tail < 0.35:
            parts.append(f"{self.pick('TX', 'CA', 'NY', 'FL', 'WA', 'AK', 'MP', 'GU', 'IL', 'OH')} {self.zip()}")
        elif tail < 0.7:
            parts.append(self.rng.choice(self.countries) + (f" {self.zip()}" if self.rng.random() < 0.6 else ""))
        elif tail < 0.85:
            parts.append(self.zip())
        return gap.join(parts)

    def group(self) -> str:
        r = self.rng.random()
        if r < 0.2:
            return f"{self.some_last()} {self.rng.choice(GROUPS)}"
        if r < 0.35:
            return f"{self.some_last()}, {self.some_last()} and {self.some_last()}"
        if r < 0.45:
            return f"{self.some_last()}{self.pick('-', ' & ', ' and ')}{self.some_last()}"
        if r < 0.6:
            return f"{self.rng.choice(TRADES)} {self.rng.choice(TRADES)} {self.rng.choice(GROUPS)}"
        if r < 0.75:
            return self.rng.choice(TRADES) + self.pick(
                "ly", "ify", "list", "guard", "hub", "works", "nomics", "bank", "star", "tree", "mine", "fund", "wise", "case"
            )
        if r < 0.82:
            return f"{self.rng.choice(TRADES)} {self.pick('Explorer', 'Nation', 'Club', 'Insights', 'Seed', 'Robotics', 'Works', 'Street', 'Harbor', 'Logic')}"
        if r < 0.9:
            return self.new_last() + self.pick("", "a", "co", "tech", "soft", "gen", "ix", " Group")
        if r < 0.94:
            return f"{self.some_town()} {self.pick('University', 'College', 'High School', 'Bank', 'Airlines', 'Council')}"
        return f"{self.pick('Department', 'Institute', 'Bureau', 'Ministry', 'Bank', 'Church')} of {self.rng.choice(TRADES)} {self.pick('Technology', 'Services', 'Research', 'Affairs', 'Studies')}"

    def whole_name(self) -> str:
        r = self.rng.random()
        first, last = self.some_first(), self.some_last()
        if r < 0.12:
            return first
        if r < 0.22:
            return last
        if r < 0.3:
            return f"{first} {self.rng.choice('ABCDEFGHJKLMNPRSTW')}. {last}"
        if r < 0.36:
            return f"{first} {self.some_first()} {last}"
        if r < 0.41:
            return f"{first} {last}-{self.some_last()}"
        if r < 0.45:
            return f"{self.rng.choice('ABCDEFGHJKLMNPRST')}. {last}"
        return f"{first} {last}"

    def slot(self, name: str) -> tuple[str, str]:
        """The filling of a slot and its tag ("" for what is no identifier, or one that patterns find)."""
        rng = self.rng
        match name:
            case "name":
                return self.whole_name(), "NAME"
            case "first":
                return self.some_first(), "NAME"
            case "last":
                return self.some_last(), "NAME"
            case "lastfirst":
                return f"{self.some_last()}, {self.some_first()}", "NAME"
            case "city":
                return self.some_town(), "PLACE"
            case "place":
                return (
                    self.some_town()
                    if rng.random() < 0.6
                    else rng.choice(self.countries)
                    if rng.random() < 0.7
                    else rng.choice(self.states)
                ), "PLACE"
            case "street":
                return self.street(), "PLACE"
            case "streetname":
                return self.road_name(), "PLACE"
            case "address":
                return self.address(), "PLACE"
            case "apt":
                return self.flat(), "PLACE"
            case "num":
                return self.number(), "PLACE"
            case "zip":
                return self.zip(), "PLACE"
            case "land":
                return rng.choice(self.countries), "PLACE"
            case "state":
                return rng.choice(self.states), "PLACE"
            case "state2":
                return self.pick("TX", "CA", "NY", "WLG", "NSW", "BC", "IL", "GA", "Ontario"), "PLACE"
            case "org":
                return self.group(), "ORG"
            case "hospital":
                head = self.pick(
                    self.some_town(),
                    self.some_last(),
                    f"St. {self.some_first()}'s",
                    f"St. {self.some_first()}",
                    self.rng.choice(self.countries),
                )
                return f"{head} {rng.choice(CARE)}", "ORG"
        return self.plain(name), ""

    def medical(self) -> str:
        """A word of Greek and Latin pieces that hardly any list holds."""
        made = (
            self.rng.choice(HEADS)
            + self.rng.choice(MIDDLES)
            + self.pick("", "o" + self.rng.choice(MIDDLES))
            + self.rng.choice(TAILS)
        )
        return made

    def headline(self) -> str:
        words = [
            self.rng.choice((self.medical(), self.rng.choice(self.common), self.rng.choice(self.common), self.rng.choice(DRUGS)))
            for _ in range(self.rng.randint(1, 6))
        ]
        small = self.rng.random() < 0.3
        return " ".join(w if small and i else capital(w) for i, w in enumerate(words))

    def body(self) -> str:
        one, two = (self.rng.choice(FIELDS).replace("#", " ") for _ in range(2))
        return self.rng.choice(BODIES).format(one, two)

    def plain(self, name: str) -> str:
        rng = self.rng
        eponym = (
            rng.choice(EPONYMS)
            if rng.random() < 0.5
            else self.some_last()
            if rng.random() < 0.7
            else f"{self.some_last()}-{self.some_last()}"
        )
        disease = (
            rng.choice(DISEASES)
            if rng.random() < 0.35
            else self.medical()
            if rng.random() < 0.4
            else f"{eponym}{self.pick(chr(39) + 's', '', '')} {rng.choice(KINDS)}"
        )
        month = self.pick("January", "March", "June", "August", "October", "December")
        known = {
            "disease": disease,
            "Disease": disease[0].upper() + disease[1:] if rng.random() < 0.6 else capital(disease),
            "DISEASE": disease.upper(),
            "drug": rng.choice(DRUGS) if rng.random() < 0.6 else rng.choice(BRANDS) if rng.random() < 0.6 else self.new_brand(),
            "Drug": rng.choice(DRUGS).capitalize() if rng.random() < 0.6 else rng.choice(BRANDS),
            "brand": rng.choice(BRANDS) if rng.random() < 0.6 else self.new_brand(),
            "med": self.medical(),
            "Med": self.medical().capitalize(),
            "head": self.headline(),
            "body": self.body(),
            "abbr": "".join(rng.choice("ABCDEFGHILMNPRSTV") for _ in range(rng.randint(2, 5))),
            "word": rng.choice(self.common),
            "Word": rng.choice(self.common).capitalize(),
            "x": f"{rng.choice((rng.randint(0, 9), rng.randint(10, 999), rng.randint(100, 30000)))}",
            "eponym": f"{eponym} {rng.choice(KINDS)}",
            "gene": self.pick("BRCA1", "CFTR", "TP53", "FMR1", "HBB", "MECP2", "PTEN", "APOE", "DMD", "COL1A1", "SCN1A"),
            "complaint": rng.choice(COMPLAINTS),
            "country": rng.choice(self.countries)
            if rng.random() < 0.6
            else self.pick("the United States", "the U.S.", "the US", "the United Kingdom"),
            "n": str(rng.randint(2, 99)),
            "date": self.pick("03/14/2016", "2019-04-02", "March 3, 2011", "12 May 2020"),
            "month": month,
            "dow": self.pick("Monday", "Friday", "Sunday"),
            "phone": f"({rng.randint(200, 999)}) {rng.randint(200, 999)}-{rng.randint(0, 9999):04d}",
            "email": f"user{rng.randint(1, 999)}@mail.example.com",
            "code": f"{rng.randint(10**7, 10**9)}",
            "initial": rng.choice("ABCDEFGHJKLMNPRST"),
            "prefix": self.pick("Mr.", "Mrs.", "Ms.", "Miss", "Dr."),
        }
        return known[name]

    def sentence(self, template: str) -> tuple[str, list[Span]]:
        while True:
            chosen = CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), template)
            if chosen == template:
                break
            template = chosen
        template = template.replace("\\n", "\n").replace("\\t", "\t")
        out, spans, at = "", [], 0
        for match in SLOT.finditer(template):
            out += template[at : match.start()]
            filling, tag = self.slot(match[1])
            if tag:
                spans.append((len(out), len(out) + len(filling), tag))
            out += filling
            at = match.end()
        return out + template[at:], spans

    def text(self) -> tuple[str, list[Span]]:
        out, spans = "", list[Span]()
        share = self.rng.choice((0.0, 0.3, 0.5, 0.7, 1.0))
        for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4))):
            source = self.phi if self.rng.random() < share else self.free
            piece, found = self.sentence(self.rng.choice(source))
            gap = "" if not out else self.pick(" ", " ", "\n")
            spans += [(a + len(out + gap), b + len(out + gap), tag) for a, b, tag in found]
            out += gap + piece
        r = self.rng.random()
        if r < 0.16 and len(out.lower()) == len(out):
            out = out.lower()
        elif r < 0.19 and len(out.upper()) == len(out):
            out = out.upper()
        return out, spans
