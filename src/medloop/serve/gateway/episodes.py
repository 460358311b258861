"""What was said before in an episode: recalled for a client that sends its newest question alone, remembered after the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from medloop.contracts import Message
from medloop.serve.gateway.answer_plan import AnswerPlan, AssistantParts, ChatCaller

log = logging.getLogger(__name__)
LONG = 2000  # characters from which on an exchange is remembered in a thread, because it is read for danger


def memory_key(caller: ChatCaller, episode: str) -> str:
    """What an episode is remembered under: whoever names the episode of somebody else recalls nothing."""
    return f"{caller.user_id} {caller.subject or ''} {episode}"


class Episodes:
    def __init__(self, parts: AssistantParts) -> None:
        self.parts = parts
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._due: dict[str, Callable[[], None]] = {}  # short exchanges, remembered as soon as their answer is sent

    async def recalled(self, messages: tuple[Message, ...], episode: str | None) -> tuple[Message, ...]:
        """The messages, with what was said before where the newest question stands alone."""
        if self.parts.recall is None or episode is None or len([m for m in messages if m.role != "system"]) > 1:
            return messages
        self._remember_due(episode)
        if (pending := self._pending.get(episode)) is not None:
            await asyncio.wait([pending])
        remembered = [message for message in self.parts.recall(episode) if message.role != "system"]
        head = 1 if messages[0].role == "system" else 0
        return (*messages[:head], *remembered, *messages[head:])

    def remember(self, plan: AnswerPlan, text: str) -> None:
        """Never waits, and never costs the answer; the next question of the episode waits for what is long."""
        if self.parts.remember is None or not text:
            return
        key, messages = memory_key(plan.caller, plan.episode_id), (*plan.messages, Message(role="assistant", content=text))
        remember = partial(self._remember, key, plan.caller.subject, messages)
        if sum(len(message.content) for message in messages) <= LONG:
            self._remember_due(key)
            self._due[key] = remember
            asyncio.get_running_loop().call_soon(self._remember_due, key)
            return
        future = self._pending[key] = asyncio.get_running_loop().run_in_executor(None, remember)
        future.add_done_callback(lambda done: self._pending.pop(key) if self._pending.get(key) is done else None)

    def _remember_due(self, key: str) -> None:
        if (remember := self._due.pop(key, None)) is not None:
            remember()

    def _remember(self, key: str, subject: str | None, messages: tuple[Message, ...]) -> None:
        assert self.parts.remember is not None
        try:
            self.parts.remember(key, subject, messages)
        except Exception as error:  # never its text: it may hold what people wrote
            log.error("an exchange was not remembered: %s", type(error).__name__)
