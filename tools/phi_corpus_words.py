"""Words for the generated English sentences of tools/phi_corpus.py: drugs, diseases, institutes, streets, companies."""

# ruff: noqa: E501
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
