"""Word and name lists of the scrubber, read once from assets/phi. tools/phi_lists.py rebuilds them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

FOLDER = resources.files("medloop") / "assets" / "phi"

# How frequent an ordinary English word is. The codes are part of the tagger's features: a new code means training again.
UNLISTED = "o"  # in no list of ordinary words
ALSO_NAME = "5"  # an ordinary word and a proper name: "mark", "rose"
FREQUENT = frozenset("01")  # among the 3,000 most frequent
COMMON = frozenset("012")  # among the 10,000 most frequent
ORDINARY = frozenset("01234")  # any ordinary word that is not a proper name too
NOT_ONLY_ORDINARY = frozenset((UNLISTED, ALSO_NAME))


class WordList(StrEnum):
    """A list that a word can be in. The letters are part of the tagger's features: a new letter means training again."""

    FIRST_NAME = "F"
    SURNAME = "L"
    TOWN = "C"
    COUNTRY = "K"
    STATE = "S"
    STREET_WORD = "R"
    """street, apartment, box"""
    COMPANY_WORD = "B"
    """inc, university, clinic"""
    TITLE = "T"
    """mr, nurse, aunt"""
    MONTH_OR_DAY = "M"
    DISEASE_WORD = "D"
    """syndrome, sign, fracture: what makes the name before it a term"""
    NATION = "N"
    """american, ashkenazi, europe"""
    MEDICAL_NAME = "Q"
    """Brands, germs, eponyms and abbreviations that look like names."""


NAMES = frozenset({WordList.FIRST_NAME, WordList.SURNAME})


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


@cache
def tiers() -> dict[str, str]:
    """Ordinary English words by how frequent they are, from "0" for the 500 most frequent to "4"; "5" is `ALSO_NAME`.

    A word that is only a proper name is not among them.
    """
    listed = {word: str(tier) for tier, words in enumerate(lines("words.txt")) for word in words.split()}
    return dict.fromkeys(_REQUEST_VERBS.split(), "3") | listed


@lru_cache(maxsize=32_768)  # a dozen finders ask about the same word
def tier(word: str) -> str:
    """How frequent this word (in lower case) is."""
    return tiers().get(word, UNLISTED)


@cache
def word_lists() -> dict[str, str]:
    """A word (in lower case) and the letters of the lists that hold it, in alphabetical order."""
    letters: dict[str, set[WordList]] = {}
    for word_list, name in _FILES:
        for entry in lines(f"{name}.txt"):
            words = entry.replace("-", " ").replace(",", " ").split()
            for word in words:
                # "New" and "Saint" are not a town, "New York" is: frequent words of a longer entry mean nothing alone.
                if len(words) == 1 or (len(word) > 2 and tier(word) not in COMMON):
                    letters.setdefault(word, set()).add(word_list)
    for word_list, special in _SPECIAL.items():
        for word in special.split():
            letters.setdefault(word, set()).add(word_list)
    return {word: "".join(sorted(listed)) for word, listed in letters.items()}


@cache
def medical_words() -> frozenset[str]:
    """English words of medicine and of talk in a surgery (in lower case) that are nobody by themselves."""
    return frozenset(word for name in ("medical_en.txt", "terms_en.txt") for line in lines(name) for word in line.split())


@cache
def eponyms() -> frozenset[str]:
    """Persons whose name is a sign, a score, a procedure or a fracture (in lower case), where such a word is beside it."""
    return frozenset(word for line in lines("eponyms_en.txt") for word in line.split())


class ChineseTerms(NamedTuple):
    by_first_two: Mapping[str, tuple[str, ...]]
    pairs: frozenset[str]
    """Every two neighbouring characters of a term."""


@cache
def medical_terms_zh() -> ChineseTerms:
    return chinese_terms(term for line in lines("medical_zh.txt") for term in line.split())


def chinese_terms(terms: Iterable[str]) -> ChineseTerms:
    groups: dict[str, tuple[str, ...]] = {}
    for term in terms:
        groups[term[:2]] = (*groups.get(term[:2], ()), term)
    pairs = {term[index : index + 2] for group in groups.values() for term in group for index in range(len(term) - 1)}
    return ChineseTerms(groups, frozenset(pairs))


@lru_cache(maxsize=32_768)
def lists_of(word: str) -> str:
    """The letters of the lists that hold this word (in lower case)."""
    return word_lists().get(word, "")


@lru_cache(maxsize=32_768)
def is_listed(word: str, among: frozenset[WordList]) -> bool:
    """Whether one of these lists holds the word (in lower case)."""
    return not among.isdisjoint(word_lists().get(word, ""))


# The sources of words.txt lack them (web2 is of 1934 and has few irregular forms), so that "Analyze this rash" would begin with
# a name, and "withdrew consent", too.
_REQUEST_VERBS = """
    analyze analyzes analyzed analyzing analyzer analyzers classify classifies classifying prioritize prioritizes prioritized
    prioritizing prioritise prioritised prioritising summarise summarised summarising catalyze catalyzed catalyzing paralyze
    paralyzed paralyzing dialyze dialyzed dialyzing hydrolyze hydrolyzed breathalyzer
    withdrew mistook overtook undertook overtaken undertaken foresaw misread reread overslept outgrew regrew redid undid overdid
    overate overdosed emailed emailing texted texting voicemail voicemails website websites smartphone app apps login logins
    untrue unhelpful unkind dismissive judgmental judgemental condescending patronising patronizing insensitive repetitive unclear
    overlong verbose robotic off-topic offtopic helpful outdated mistranslated hallucinated miscalculated mislabelled mislabeled
"""
_FILES = (
    (WordList.FIRST_NAME, "first_names"), (WordList.FIRST_NAME, "names_world"), (WordList.SURNAME, "surnames"),
    (WordList.SURNAME, "names_world"), (WordList.TOWN, "towns"), (WordList.COUNTRY, "countries"), (WordList.STATE, "states"),
)  # fmt: skip
_SPECIAL = {
    WordList.STREET_WORD: """
        street st avenue ave road rd drive dr lane ln boulevard blvd court ct way place pl square terrace parkway pkwy circle
        highway hwy route alley crescent close row mews quay trail walk plaza loop point heights hill rue via calle strasse straße
        str weg gasse plaza avenida rua platz laan straat gatan vägen vej gade tie katu utca út ulica ul aleja corso viale piazza
        chemin allée impasse place boulevard apt apartment suite ste unit floor room box po building bldg block flat ps apo fpo
        dpo burg manor villas estates station springs ferry spurs ports trace track stravenue throughway skyway village
    """,
    WordList.COMPANY_WORD: """
        inc ltd llc plc gmbh corp corporation company co group holdings partners associates sons bank university college school
        institute hospital clinic center centre medical foundation trust society association labs laboratories systems
        technologies technology solutions software consulting services industries international global ventures capital media
        networks studios records pharmacy insurance church hotel restaurant council department agency press airlines motors energy
        analytics data health financial sa ag oy ab bv
    """,
    WordList.TITLE: """
        mr mrs ms miss mx dr doctor prof professor nurse sir madam sister rev father fr capt captain sgt judge senator president
        king queen prince princess lord lady aunt uncle grandma grandpa
    """,
    WordList.MONTH_OR_DAY: """
        january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept
        oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun
    """,
    WordList.DISEASE_WORD: """
        syndrome disease disorder sign test fracture palsy catheter reflex lymphoma tumor tumour sarcoma anemia anaemia score
        scale criteria dystrophy ataxia phenomenon maneuver manoeuvre method stain staging index procedure virus bacillus
        carcinoma leukemia deficiency gene mutation encephalopathy neuropathy myopathy dementia chorea thyroiditis esophagus
        contracture nodes bodies cells duct tube pouch line lines spots triad classification grade agar solution curve correction
        barr zollinger
    """,
    WordList.NATION: """
        american british english french german spanish italian chinese japanese korean indian russian african asian european
        caucasian hispanic latino latina jewish ashkenazi arab arabic muslim christian catholic hindu buddhist canadian australian
        mexican brazilian dutch swedish norwegian danish finnish polish turkish greek irish scottish welsh swiss austrian belgian
        portuguese hungarian czech israeli egyptian iranian iraqi kenyan nigerian ethiopian vietnamese thai filipino indonesian
        mediterranean scandinavian sephardic amish native caribbean western eastern northern southern latin europe africa asia
        africans americans europeans asians hispanics antarctica oceania internet medicare medicaid christmas easter
    """,
    WordList.MEDICAL_NAME: """
        tylenol advil motrin aleve lipitor crestor zocor plavix coumadin eliquis xarelto zoloft prozac paxil lexapro celexa
        effexor cymbalta wellbutrin abilify seroquel risperdal zyprexa invega lasix norvasc diovan cozaar avalide toprol coreg
        ventolin advair singulair flonase claritin zyrtec allegra benadryl nexium prilosec zantac pepcid humira enbrel remicade
        lantus humalog januvia glucotrol ozempic glucophage synthroid viagra cialis flomax proscar ditropan detrol xanax ativan
        valium ambien klonopin neurontin lyrica topamax keppra dilantin tegretol depakote lamictal vicodin percocet oxycontin
        ultram celebrex voltaren mobic fosamax boniva premarin botox accutane augmentin zithromax cipro levaquin flagyl keflex
        bactrim diflucan lamisil valtrex tamiflu avastin herceptin gleevec keytruda medrol dosepak imitrex zofran reglan imodium
        lidoderm elavil naprosyn antivert robitussin mucinex sudafed nyquil tums maalox miralax metamucil dulcolax colace lovenox
        heparin insulin metformin lisinopril staphylococcus streptococcus escherichia helicobacter salmonella clostridium
        mycobacterium pseudomonas klebsiella candida aspergillus plasmodium borrelia chlamydia bartonella listeria legionella
        neisseria toxoplasma trichomonas giardia shigella orphanet omim medlineplus medscape pubmed medline cochrane genereviews
        wikipedia uptodate embase scopus doppler foley parkinson alzheimer alzheimers hodgkin hodgkins crohn crohns hashimoto
        babinski romberg holter gleason apgar glasgow mantoux valsalva heimlich trendelenburg cushing cushings huntington
        huntingtons marfan tourette kawasaki raynaud sjogren sjogrens duchenne leber leigh lewy barrett barretts paget pagets
        wilms ewing kaposi burkitt fallot virchow kaplan meier wilcoxon mann whitney fisher bonferroni kruskal wallis spearman
        pearson likert cronbach bland altman tinel phalen hirschsprung kocher whipple mcburney rovsing lachman lasegue kernig
        brudzinski homans hoffmann bouchard heberden dupuytren colles bartholin skene meckel zenker boerhaave zollinger peutz
        jeghers dubin wernicke korsakoff guillain friedreich creutzfeldt jakob gaucher fabry pompe niemann tay sachs ehlers danlos
        brugada takotsubo takayasu behcet churg goodpasture alport fanconi bartter gitelman basedow klinefelter prader angelman
        patau digeorge rett asperger menieres meniere scheuermann osgood schlatter perthes quervain nissen billroth roux bassini
        bankart mohs kegel crede apgar snellen ishihara schirmer rinne kussmaul cheyne biot quincke koplik forchheimer nikolsky
        auspitz koebner wickham tzanck ziehl neelsen giemsa papanicolaou coombs schilling westergren wassermann ganz groshong
        tenckhoff blakemore sengstaken kirschner steinmann ilizarov mom mommy dad daddy grandma grandpa followup nonsmoker
        adderall ritalin darvocet prevacid amoxil avodart cardizem synvisc equagesic langerhans charcot chiari stargardt glanzmann
        farber fallopian lisch fournier kernicterus autoimmune ultrasound telemedicine cesarean caesarean ebola zika lyme covid
        dna rna hiv aids copd htn cad chf gerd mri ekg ecg bmi icu
    """,
}
