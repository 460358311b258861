"""Word and name lists of the scrubber, read once from assets/phi. tools/phi_lists.py rebuilds them."""

from __future__ import annotations

from functools import cache
from importlib import resources

FOLDER = resources.files("medloop") / "assets" / "phi"
OPEN = "o"  # the tier of a word that no list of ordinary words holds


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


@cache
def tiers() -> dict[str, str]:
    """Ordinary English words by how frequent they are: "0" for the 500 most frequent, up to "4"; "5" is also a proper name.

    A word that is nothing but a proper name is not among them.
    """
    return {word: str(tier) for tier, words in enumerate(lines("words.txt")) for word in words.split()}


@cache
def marks() -> dict[str, str]:
    """A word (in lower case) and the lists that hold it, one letter each."""
    found: dict[str, set[str]] = {}
    common = tiers()
    for mark, name in (("F", "first_names"), ("L", "surnames"), ("C", "towns"), ("K", "countries"), ("S", "states")):
        for entry in lines(f"{name}.txt"):
            words = entry.replace("-", " ").replace(",", " ").split()
            for word in words:
                # "New" and "Saint" are not a town, "New York" is: frequent words of a longer entry say nothing alone.
                if len(words) == 1 or (len(word) > 2 and common.get(word, OPEN) not in "012"):
                    found.setdefault(word, set()).add(mark)
    for mark, special in SPECIAL.items():
        for word in special.split():
            found.setdefault(word, set()).add(mark)
    return {word: "".join(sorted(letters)) for word, letters in found.items()}


SPECIAL = {
    "R": """street st avenue ave road rd drive dr lane ln boulevard blvd court ct way place pl square terrace parkway pkwy circle
    highway hwy route alley crescent close row mews quay trail walk plaza loop point heights hill rue via calle strasse straße
    str weg gasse plaza avenida rua platz laan straat gatan vägen vej gade tie katu utca út ulica ul aleja corso viale piazza
    chemin allée impasse place boulevard apt apartment suite ste unit floor room box po building bldg block flat ps apo fpo dpo
    burg manor villas estates station springs ferry spurs ports trace track stravenue throughway skyway village""",
    "B": """inc ltd llc plc gmbh corp corporation company co group holdings partners associates sons bank university college
    school institute hospital clinic center centre medical foundation trust society association labs laboratories systems
    technologies technology solutions software consulting services industries international global ventures capital media
    networks studios records pharmacy insurance church hotel restaurant council department agency press airlines motors
    energy analytics data health financial sa ag oy ab bv""",
    "T": """mr mrs ms miss mx dr doctor prof professor nurse sir madam sister rev father fr capt captain sgt judge senator
    president king queen prince princess lord lady aunt uncle grandma grandpa""",
    "M": """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun""",
    "D": """syndrome disease disorder sign test fracture palsy catheter reflex lymphoma tumor tumour sarcoma anemia anaemia
    score scale criteria dystrophy ataxia phenomenon maneuver manoeuvre method stain staging index procedure virus bacillus
    carcinoma leukemia deficiency gene mutation encephalopathy neuropathy myopathy dementia chorea thyroiditis esophagus
    contracture nodes bodies cells duct tube pouch line lines spots triad classification grade agar solution curve correction
    barr zollinger""",
    "N": """american british english french german spanish italian chinese japanese korean indian russian african asian european
    caucasian hispanic latino latina jewish ashkenazi arab arabic muslim christian catholic hindu buddhist canadian australian
    mexican brazilian dutch swedish norwegian danish finnish polish turkish greek irish scottish welsh swiss austrian belgian
    portuguese hungarian czech israeli egyptian iranian iraqi kenyan nigerian ethiopian vietnamese thai filipino indonesian
    mediterranean scandinavian sephardic amish native caribbean western eastern northern southern latin europe africa asia
    africans americans europeans asians hispanics antarctica oceania internet medicare medicaid christmas easter""",
    # Words of medicine that look like names: brands, germs, registers, signs. Only a hint to the tagger, never a rule.
    "Q": """tylenol advil motrin aleve lipitor crestor zocor plavix coumadin eliquis xarelto zoloft prozac paxil lexapro celexa
    effexor cymbalta wellbutrin abilify seroquel risperdal zyprexa invega lasix norvasc diovan cozaar avalide toprol
    coreg ventolin advair
    singulair flonase claritin zyrtec allegra benadryl nexium prilosec zantac pepcid humira enbrel remicade lantus humalog januvia
    glucotrol ozempic glucophage synthroid viagra cialis flomax proscar ditropan detrol xanax ativan valium ambien klonopin
    neurontin lyrica topamax keppra dilantin tegretol depakote lamictal vicodin percocet oxycontin ultram celebrex voltaren mobic
    fosamax boniva premarin botox accutane augmentin zithromax cipro levaquin flagyl keflex bactrim diflucan lamisil valtrex
    tamiflu avastin herceptin gleevec keytruda medrol dosepak imitrex zofran reglan imodium lidoderm elavil naprosyn antivert
    robitussin mucinex sudafed nyquil tums maalox miralax metamucil dulcolax colace lovenox heparin insulin metformin lisinopril
    staphylococcus streptococcus escherichia helicobacter salmonella clostridium mycobacterium pseudomonas klebsiella candida
    aspergillus plasmodium borrelia chlamydia bartonella listeria legionella neisseria toxoplasma trichomonas giardia shigella
    orphanet omim medlineplus medscape pubmed medline cochrane genereviews wikipedia uptodate embase scopus
    doppler foley parkinson alzheimer alzheimers hodgkin hodgkins crohn crohns hashimoto babinski romberg holter gleason apgar
    glasgow mantoux valsalva heimlich trendelenburg cushing cushings huntington huntingtons marfan tourette kawasaki raynaud
    sjogren sjogrens duchenne leber leigh lewy barrett barretts paget pagets wilms ewing kaposi burkitt fallot virchow
    kaplan meier wilcoxon mann whitney fisher bonferroni kruskal wallis spearman pearson likert cronbach bland altman
    tinel phalen hirschsprung kocher whipple mcburney rovsing lachman lasegue kernig brudzinski homans hoffmann bouchard heberden
    dupuytren colles bartholin skene meckel zenker boerhaave zollinger peutz jeghers dubin wernicke korsakoff
    guillain friedreich creutzfeldt jakob gaucher fabry pompe niemann tay sachs
    ehlers danlos brugada takotsubo takayasu behcet churg goodpasture alport fanconi bartter gitelman  
     basedow klinefelter prader angelman patau digeorge rett asperger menieres meniere
      scheuermann osgood schlatter perthes quervain nissen billroth roux  
    bassini bankart mohs kegel crede apgar snellen ishihara schirmer rinne
     kussmaul cheyne biot quincke koplik forchheimer nikolsky auspitz koebner
     wickham tzanck ziehl neelsen giemsa papanicolaou coombs schilling westergren wassermann
     ganz groshong tenckhoff blakemore sengstaken kirschner steinmann ilizarov
    mom mommy dad daddy grandma grandpa followup nonsmoker adderall ritalin darvocet prevacid amoxil avodart cardizem synvisc
    equagesic langerhans charcot chiari stargardt glanzmann farber fallopian lisch fournier kernicterus autoimmune
    ultrasound telemedicine
    cesarean caesarean ebola zika lyme covid dna rna hiv aids copd htn cad chf gerd mri ekg ecg bmi icu""",
}
