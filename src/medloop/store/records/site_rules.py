"""Who may belong to a site, and whose words a program of a site passes on (sites.py)."""

from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import InputError

ASKERS = ("clinician", "engineer")  # the other roles only read and decide, which is the work of the central staff


def check_role_at(name: str, role: str, site: str) -> None:
    if site != DEFAULT_SITE and role not in ASKERS:
        raise InputError(
            f"{name} is to be {role} at {site}; only {' and '.join(f'{role}s' for role in ASKERS)} can belong to a site",
            f"The other roles are central staff: medloop site assign {name} {DEFAULT_SITE}",
        )


def check_speaks_for_site(program: str, site: str, person: str, site_of_person: str) -> None:
    if site not in (DEFAULT_SITE, site_of_person):
        raise InputError(
            f"{program} belongs to the site {site}, and {person} to {site_of_person}",
            "A program of a site speaks for clinicians of that site, one of main for all",
        )
