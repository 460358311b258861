"""Syllables and surnames of pinyin."""

from functools import lru_cache

_INITIALS = ("", *"b p m f d t n l g k h j q x r z c s y w zh ch sh".split())
_FINALS = "a o e i u v ai ei ui ao ou iu ie ue er an en in un ang eng ing ong ia iao ian iang iong ua uo uai uan uang ve".split()
PINYIN_SURNAMES = frozenset(
    """wang li zhang liu chen yang zhao huang zhou wu xu sun hu zhu gao lin he guo ma luo liang song zheng xie han tang feng yu
    dong
    xiao cheng cao yuan deng fu shen zeng peng lv lu su jiang cai jia ding wei xue ye yan pan du dai xia zhong tian ren fan fang
    shi yao tan liao zou xiong jin hao kong bai cui kang mao qiu qin gu hou shao meng long wan duan lei qian yin chang qiao gong
    lai pang ni tao mo wen zhuang ouyang sima zhuge shangguan situ""".split()
)


@lru_cache(maxsize=1)
def _syllables() -> frozenset[str]:
    return frozenset(initial + final for initial in _INITIALS for final in _FINALS)


@lru_cache(maxsize=4096)
def count_syllables(word: str) -> int:
    """In how few syllables of pinyin this word can be read; 0 if in none."""
    if word in _syllables():
        return 1
    return 2 if any(word[:cut] in _syllables() and word[cut:] in _syllables() for cut in range(1, len(word))) else 0
