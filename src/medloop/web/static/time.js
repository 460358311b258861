// Times come as UTC; they are shown in the reader's time zone, with UTC on hover. New parts of a page are treated the same.
const locale = document.documentElement.lang.startsWith("zh") ? "zh-Hans" : "en-GB";

function localise(element) {
  const time = new Date(element.dateTime);
  if (element.title || Number.isNaN(time.getTime())) return;
  element.title = element.textContent;
  const clock = element.hasAttribute("data-seconds") ? "medium" : "short";
  element.textContent = time.toLocaleString(locale, { dateStyle: "medium", timeStyle: clock });
}

const localiseAll = () => document.querySelectorAll("time[datetime]").forEach(localise);
localiseAll();
document.addEventListener("medloop:swapped", localiseAll);
