"""The judge over HTTP: tasks and answers for annotators; judgements, progress and error sheets for the curator.

`router(store)` is mounted at /api/judge by `fabula judge serve` and by the studio. What an annotator is sent names no
system, no pair and no check. The curator's routes do, so they want the curator's key where one is given.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fabula.apps.judge.judgement import CODE, HIGHEST, LOWEST, MAX_SECONDS, Judgement
from fabula.apps.judge.lowest import STORIES, lowest, systems_of
from fabula.apps.judge.progress import progress
from fabula.apps.judge.store import ErrorSheet, Store, Task
from fabula.apps.web.errors import RefusedError, responses

Rating = Annotated[int, Field(ge=LOWEST, le=HIGHEST, strict=True)]
Ratings = Annotated[list[Annotated[list[Rating], Field(max_length=63)]], Field(min_length=2, max_length=2)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="Time the pair was looked at.")]
# The pattern is documented here and checked in the store, whose refusal says it in words.
PATTERN: dict[str, JsonValue] = {"pattern": f"^{CODE.pattern}$"}
Code = Annotated[str, Field(max_length=64, description="The annotator's code.", json_schema_extra=PATTERN)]
Better = Annotated[Literal[0, 1] | None, Field(description="The better story of the pair, null for a tie.")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TaskRequest(Strict):
    code: Code


class ShownTask(Strict):
    """What an annotator sees of an item."""

    item: int
    left: list[str]
    right: list[str]


class TaskAnswer(Strict):
    task: ShownTask | None
    answered: int = Field(description="What this annotator has judged so far.")
    ahead: int = Field(description="Pairs that they may still get, this one among them.")
    waiting: bool = Field(description="Nothing to do just now, but a pair may come free.")
    known: bool = Field(description="Whether the code had been here before.")
    study: str = Field(description="The study's own name, for what a browser keeps of it.")
    code: str = Field(description="The code as the study has it: without capitals.")


class AnswerRequest(Strict):
    code: Code
    item: int = Field(strict=True)
    ratings: Ratings = Field(description="Of the left story, then the right: a rating of every sentence but the first.")
    choice: Literal["left", "right", "tie"]
    seconds: Seconds
    again: bool = Field(False, description="Whether it replaces the last answer that this annotator gave.")


class PreviousTask(Strict):
    """What an annotator judged last, as it was answered."""

    item: int
    left: list[str]
    right: list[str]
    ratings: list[list[int]] = Field(description="Of the left story, then the right.")
    choice: Literal["left", "right", "tie"]


class PreviousAnswer(Strict):
    task: PreviousTask | None


class AnnotatorAnswer(Strict):
    code: str
    judged: int
    checks: int
    passed: int
    seconds: float
    last: int | None


class OpenPair(Strict):
    pair: str
    people: int


class ProgressAnswer(Strict):
    wanted: int
    judged: int
    open: list[OpenPair] = Field(description="Pairs that still want people.")
    annotators: list[AnnotatorAnswer]


class AnswerAnswer(Strict):
    kept: bool = Field(description="Always true: the answer is on disk.")
    new: bool = Field(description="False where the same answer had come before.")


class JudgementContent(Strict):
    ratings: Ratings = Field(description="By story of the pair: a rating of every sentence but the first.")
    better: Better
    seconds: Seconds = 0.0


class JudgementRequest(JudgementContent):
    pair: str = Field(max_length=80)
    annotator: Code


class JudgementAnswer(Strict):
    id: int
    pair: str
    annotator: str
    ratings: list[list[int]]
    better: int | None
    seconds: float
    created: int
    updated: int


class JudgementList(Strict):
    judgements: list[JudgementAnswer]
    total: int


class StudyAnswer(Strict):
    pairs: int
    checks: int
    annotators: int = Field(description="People for each pair.")
    seed: int
    systems: list[str]
    judgements: int
    finished: int = Field(description="Pairs that have all their people.")


class SheetContent(Strict):
    """Appendix B's questions about a story."""

    ending: bool = Field(description="The ending is not connected with the sentences before.")
    off_topic: bool = Field(description="A sentence is mildly off topic.")
    ungrammatical: list[bool] = Field(max_length=64, description="One for each written sentence.")


class SheetRequest(SheetContent):
    pair: str = Field(max_length=80)
    story: Literal[0, 1]


class LowStory(Strict):
    pair: str
    story: int
    mean: float
    sentences: list[str]
    written: list[int]
    sheet: SheetContent | None


class LowList(Strict):
    systems: list[str]
    stories: list[LowStory]
    answered: int


def router(store: Store, *, curator: str | None = None) -> APIRouter:
    """Every route of the judge; with `curator`, the curator's routes want that key in X-Fabula-Curator."""
    made = APIRouter(tags=["judge"], responses=responses(400, 401, 403, 404, 409, 413, 422, 503))
    _annotators(made, store)
    guarded = APIRouter(dependencies=[Depends(_keeper(curator))] if curator is not None else [])
    _judgements(guarded, store)
    _sheets(guarded, store)
    made.include_router(guarded)
    return made


def _keeper(curator: str) -> Any:
    """A dependency that refuses requests without the curator's key."""

    def keep(x_fabula_curator: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(x_fabula_curator.encode(), curator.encode()):
            raise RefusedError(403, "this is the curator's: open the curator's address that the server printed")

    return keep


def _annotators(made: APIRouter, store: Store) -> None:
    @made.post("/tasks")
    def next_task(request: TaskRequest) -> TaskAnswer:
        """What this annotator judges next. Asked again before an answer, it is the same."""
        return _shown(store.next_task(request.code))

    @made.post("/answers")
    def answer(request: AnswerRequest) -> AnswerAnswer:
        """Keep an answer. The same answer sent again is acknowledged again and kept once."""
        told = request.model_dump(exclude={"item", "ratings"})
        _, new = store.answer(number=request.item, sides=request.ratings, **told)
        return AnswerAnswer(kept=True, new=new)

    @made.post("/tasks/previous")
    def previous_task(request: TaskRequest) -> PreviousAnswer:
        """What this annotator judged last, to be judged again."""
        found = store.previous(request.code)
        if found is None:
            return PreviousAnswer(task=None)
        item, judgement = found
        (left, right), turned = item.sides(), item.swapped
        ratings = [list(judgement.ratings[int(turned)]), list(judgement.ratings[1 - int(turned)])]
        choice: Literal["left", "right", "tie"] = "tie"
        if judgement.better is not None:
            choice = "left" if judgement.better == int(turned) else "right"
        return PreviousAnswer(
            task=PreviousTask(item=item.number, left=list(left), right=list(right), ratings=ratings, choice=choice)
        )


def _shown(task: Task) -> TaskAnswer:
    shown = None
    if task.item is not None:
        left, right = task.item.sides()
        shown = ShownTask(item=task.item.number, left=list(left), right=list(right))
    return TaskAnswer(
        task=shown, answered=task.answered, ahead=task.ahead, waiting=task.waiting, known=task.known,
        study=task.study, code=task.code,
    )  # fmt: skip


def _judgements(made: APIRouter, store: Store) -> None:
    @made.get("/study")
    def study() -> StudyAnswer:
        """How far the study is."""
        settings, items = store.settings(), store.items()
        pairs = [item.pair for item in items]
        found, total = store.judgements()
        people: dict[str, int] = {}
        for one in found:
            people[one.pair] = people.get(one.pair, 0) + 1
        proper = [pair for pair in pairs if not pair.is_check]
        return StudyAnswer(
            pairs=len(proper),
            checks=len(pairs) - len(proper),
            annotators=settings.annotators,
            seed=settings.seed,
            systems=systems_of(pairs),
            judgements=total,
            finished=sum(people.get(pair.id, 0) >= settings.annotators for pair in proper),
        )

    @made.get("/progress")
    def how_far() -> ProgressAnswer:
        """Who has judged how much, and which pairs still want people."""
        told = progress(store)
        return ProgressAnswer(
            wanted=told.wanted,
            judged=told.judged,
            open=[OpenPair(pair=pair, people=people) for pair, people in told.open],
            annotators=[AnnotatorAnswer(**asdict(one)) for one in told.annotators],
        )

    @made.get("/judgements")
    def list_judgements(
        annotator: Annotated[str | None, Query(max_length=64)] = None,
        pair: Annotated[str | None, Query(max_length=80)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> JudgementList:
        """Judgements in the order they came."""
        found, total = store.judgements(annotator=annotator, pair=pair, limit=limit, offset=offset)
        return JudgementList(judgements=[_answer(one) for one in found], total=total)

    @made.post("/judgements", status_code=201)
    def create_judgement(request: JudgementRequest) -> JudgementAnswer:
        """Keep a judgement that comes from elsewhere."""
        return _answer(store.add(request.pair, request.annotator, request.ratings, request.better, request.seconds))

    @made.get("/judgements/{id}")
    def get_judgement(id: int) -> JudgementAnswer:
        return _answer(store.judgement(id))

    @made.put("/judgements/{id}")
    def replace_judgement(id: int, request: JudgementContent) -> JudgementAnswer:
        """Put other content in the place of a judgement's; pair and annotator stay."""
        return _answer(store.replace(id, request.ratings, request.better, request.seconds))

    @made.delete("/judgements/{id}", status_code=204)
    def delete_judgement(id: int) -> Response:
        store.remove(id)
        return Response(status_code=204)


def _answer(judgement: Judgement) -> JudgementAnswer:
    return JudgementAnswer(**judgement.to_json())


def _sheets(made: APIRouter, store: Store) -> None:
    @made.get("/errors")
    def lowest_stories(
        system: Annotated[str | None, Query(max_length=80)] = None,
        number: Annotated[int, Query(ge=1, le=1000)] = STORIES,
    ) -> LowList:
        """The lowest-rated stories with what the error sheet says of them; who wrote one stays hidden."""
        pairs = [item.pair for item in store.items()]
        sheets = {(sheet.pair, sheet.story): sheet for sheet in store.error_sheets()}
        shown = [
            LowStory(
                pair=low.pair.id,
                story=low.story,
                mean=low.mean,
                sentences=list(low.pair.stories[low.story]),
                written=low.pair.written(low.story),
                sheet=_sheet(sheets.get((low.pair.id, low.story))),
            )
            for low in lowest(pairs, store.judgements()[0], system=system, number=number)
        ]
        return LowList(
            systems=systems_of(pairs), stories=shown, answered=sum(story.sheet is not None for story in shown)
        )

    @made.put("/errors")
    def keep_sheet(request: SheetRequest) -> SheetContent:
        """Keep the answers about one story, in the place of earlier ones."""
        store.keep_errors(
            ErrorSheet(
                pair=request.pair,
                story=request.story,
                ending=request.ending,
                off_topic=request.off_topic,
                ungrammatical=tuple(request.ungrammatical),
            )
        )
        return SheetContent(**request.model_dump(exclude={"pair", "story"}))


def _sheet(sheet: ErrorSheet | None) -> SheetContent | None:
    if sheet is None:
        return None
    return SheetContent(ending=sheet.ending, off_topic=sheet.off_topic, ungrammatical=list(sheet.ungrammatical))
