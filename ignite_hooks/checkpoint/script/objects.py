"""What a script has attached itself and keeps a state: found through the handlers of its engines and its step."""

from __future__ import annotations

import gc
import itertools
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ignite_hooks.checkpoint.script.inline_attributes import may_have_others
from ignite_hooks.checkpoint.script.kinds import SCALARS, memory_of
from ignite_hooks.checkpoint.script.own_generators import is_generator
from ignite_hooks.checkpoint.script.reachable import is_installed, package_of, reach, worth_entering_in_script
from ignite_hooks.checkpoint.script.shrinking import taken_from
from ignite_hooks.checkpoint.script.variables import Variable, code_of, frozen_weights, modules_of, variables
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each, parts_of
from ignite_hooks.model.trained import LooseWeights, OtherModule, drives_the_same, is_optimizer, tensors_of, weights_of
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from ignite.engine import Engine

    from ignite_hooks.run.runner import Runner

Kind = Literal["stateful", "metric", "generator", "loader", "module", "variables"]

STEP: Final = "trainer.step"
"""Where the step of the trainer is among the handlers."""

IGNITE_ATTRIBUTES = frozenset(("batch", "dataloader", "epoch", "epoch_length", "iteration", "max_epochs", "max_iters"))
IGNITE_ATTRIBUTES |= {"metrics", "output", "scaler", "seed", "times"}
"""What Ignite keeps in the state of an engine."""

VARIABLES: Final = f"{STEP}.variables"
"""The key of what the script keeps in variables."""

_NO_STATE = frozenset((types.FunctionType, types.MethodType, dict, list, tuple))
"""The most frequent types of what handlers hold."""

LOCAL: tuple[Kind, ...] = ("metric", "generator", "loader", "variables")
"""What differs between ranks."""


class ScriptObject(NamedTuple):
    """An object of the script with a state."""

    key: str
    """Its engine, event and place among the objects there, which a resumed script has too."""
    thing: Any
    kind: Kind

    @property
    def words(self) -> str:
        """Its name in messages."""
        return in_words(self.key)


def in_words(key: str) -> str:
    """Return the name in messages of an object of the script, by its key.

    Example:
        >>> in_words("trainer.EPOCH_COMPLETED.StepLR:scheduler")
        'StepLR (scheduler; trainer, EPOCH_COMPLETED)'
    """
    engine, event, name = key.split(".", 2)
    kind, _, variable = name.partition(":")
    return f"{kind} ({variable}; {engine}, {event})" if variable else f"{kind} ({engine}, {event})"


Held = tuple[str, str, Any]
"""What a handler holds: the place of the handler, the name of the object there, the object."""


class _Handler(NamedTuple):
    place: str
    function: Any
    others: tuple[Any, ...]


def script_objects(runner: Runner, held: Iterable[Held] | None = None) -> list[ScriptObject]:
    """Return what the script has attached that keeps a state and is not saved in another way, each once.

    Args:
        runner: The run.
        held: What `held_by_handlers` has just returned, if anything.
    """
    from ignite.handlers import EMAHandler

    found: list[ScriptObject] = []
    known = _saved_otherwise(runner)
    used: dict[str, int] = {}

    def add(place: str, name: str, thing: Any, kind: Kind) -> None:
        if id(thing) not in known:
            known.add(id(thing))
            key = f"{place}.{name}"
            number = used[key] = used.get(key, -1) + 1
            found.append(ScriptObject(f"{key}#{number}" if number else key, thing, kind))

    handlers = list(_handlers(runner))
    for handler in handlers:
        owner = _owner(handler.function)
        if isinstance(owner, EMAHandler):
            add(handler.place, "EMAHandler", owner.ema_model, "stateful")
        elif not isinstance(owner, type(runner)) and (kind := _kind_of_handler(owner, handler.place)) is not None:
            add(handler.place, type(owner).__name__, owner, kind)
    mine = list(each(runner.optimizer))
    for place, variable, thing in _held_by(handlers) if held is None else held:
        if (kind_held := _kind_of_held(thing, mine)) is not None:
            add(place, f"{type(thing).__name__}:{variable}", thing, kind_held)
    for variable, thing, trained in _trained_in_step(runner, [each_object.thing for each_object in found]):
        add(STEP, f"{_type_name(thing)}:{variable}", thing, trained)
    for name, module in _modules(runner):
        for attribute, thing in list(vars(module).items()):
            if is_generator(thing):
                add("trainer.model", f"{type(thing).__name__}:{name}{attribute}", thing, "generator")
    return found


def script_variables(runner: Runner, found: Iterable[ScriptObject]) -> list[Variable]:
    """Return where the script keeps values: its step, its handlers, what these hold, its modules, the trainer's state.

    Args:
        runner: The run.
        found: What is saved in another way.
    """
    roots = _roots(runner)
    saved = _saved_otherwise(runner) | {id(one.thing) for one in found if one.kind != "module"}
    if isinstance(data := runner.trainer.state.dataloader, list):  # whose order a script may change
        saved.discard(id(data))
    models = _all_models(runner, found)
    modules = {name: module for model in models for name, module in modules_of(model)}
    places = {f"engine.{name}": engine for name, engine in _engines(runner) if _is_plain(engine)}
    for place, engine in places.items():
        attributes = vars(engine) if may_have_others(engine, _of_every_engine()) else {}
        held = {name: thing for name, thing in attributes.items() if name not in _of_every_engine()}
        roots |= {f"{place}.{name}": thing for name, thing in held.items() if not isinstance(thing, SCALARS)}
    places |= {f"engine.{name}.state": engine.state for name, engine in runner.evaluators.items()}
    places["trainer.state"] = runner.trainer.state
    ours = {*IGNITE_ATTRIBUTES, *runner.trainer.state_dict_user_keys, *_of_every_engine()}
    freezes = any(getattr(hook, "freezes", False) for hook in runner.hooks.registered.values())
    return [
        *variables(roots, modules, places, saved, ours),
        *(frozen_weights(f"model.{name}", model) for name, model in _named_models(runner) if not freezes),
    ]


def _roots(runner: Runner) -> dict[str, Any]:
    """Return the functions and objects that the script has attached, by place."""
    roots: dict[str, Any] = {}
    for handler in _handlers(runner):
        for thing in (handler.function, *handler.others):
            number = sum(place.partition("#")[0] == handler.place for place in roots)
            roots[f"{handler.place}#{number}" if number else handler.place] = thing
    return roots


def names_taken_from(runner: Runner) -> set[str]:
    """Return the names of variables that the code of the script takes something out of.

    Args:
        runner: The run.
    """
    return {name for code in code_of(_roots(runner)) for name in taken_from(code)}


def _named_models(runner: Runner) -> Iterator[tuple[str, Any]]:
    import torch

    for part, model in parts_of(runner.model).items():
        if isinstance(model, torch.nn.Module):
            yield part or type(unwrapped(model)).__name__, model


def _engines(runner: Runner) -> list[tuple[str, Any]]:
    return [("trainer", runner.trainer), *sorted(runner.evaluators.items())]


def _is_plain(engine: Any) -> bool:
    """Return whether the attributes of an engine are Ignite's and the script's alone."""
    package = package_of(engine)
    return package == "ignite" or not is_installed(package)


@lru_cache
def _of_every_engine() -> frozenset[str]:
    """Return the attributes of every engine, and what stands for the methods that run it."""
    from ignite.engine import Engine

    return frozenset({*vars(Engine(lambda *_: None)), "run", "_internal_run", "_internal_run_legacy"})


def _all_models(runner: Runner, found: Iterable[ScriptObject]) -> list[Any]:
    return [*each(runner.model), *(one.thing.module for one in found if isinstance(one.thing, OtherModule))]


def known_memory(runner: Runner, found: Iterable[ScriptObject]) -> set[int]:
    """Return where the content is of the weights and buffers that are saved in another way, and their ids."""
    import torch

    models = [model for model in _all_models(runner, found) if isinstance(model, torch.nn.Module)]
    modules = [module for model in models for module in model.modules()]
    buffers = [
        buffer
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    ]
    weights = [weight for model in models for weight in model.parameters()]
    tensors = (*weights, *buffers)
    return {*map(memory_of, tensors), *map(id, tensors)} - {0}


def _trained_in_step(runner: Runner, found: list[Any]) -> list[tuple[str, Any, Kind]]:
    """Return what the trainer's step trains or may update beside the model of the run, by its name there.

    These are optimizers, modules and single weights of optimizers, without the tensors that are saved in another way.

    Args:
        runner: The run.
        found: What is known to be saved with the script's objects.
    """
    import torch

    held, optimizers, more = _in_step(runner)
    mine = [one for _, one in optimizers]
    given = [thing for service in runner.services.values() for thing in each(service)]
    modules = [thing for thing in given if isinstance(thing, torch.nn.Module)]
    # A service that is frozen is not saved with the others.
    saved = [one for one in modules if any(weight.requires_grad for weight in one.parameters())]
    known = tensors_of([*each(runner.model), *saved, *found])
    trained = {id(weight) for one in [*mine, *more.values()] for weight in weights_of(one).values()}
    result: list[tuple[str, Any, Kind]] = [(name, one, "stateful") for name, one in more.items()]
    for name, thing in held:
        if isinstance(thing, torch.nn.Module):
            other = OtherModule(thing, known, trained)
            if not other.is_empty:
                known |= tensors_of([thing])
                result.append((name, other, "module"))
    for name, one in [*optimizers, *more.items()]:
        loose = LooseWeights(one, known)
        if loose.weights:
            known |= {id(weight) for weight in loose.weights.values()}
            result.append((name, loose, "stateful"))
    return result


def _in_step(runner: Runner) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]], dict[str, Any]]:
    """Return what the step holds, the optimizers that the script has passed, and those that only the step has."""
    step = {"handler": runner.trainer._process_function}
    held = [(_variable(place), thing) for place, thing in reach(step, _worth_entering_in_step)]
    optimizers = _optimizers(runner, runner.services)
    mine, more = [one for _, one in optimizers], dict[str, Any]()
    for name, thing in held:
        if is_optimizer(thing) and not drives_the_same(thing, [*mine, *more.values()]):
            more[name] = thing
    return held, optimizers, more


def _worth_entering_in_step(thing: object) -> bool:
    """Return whether something in the step may hold what is trained: also a module that has its optimizers."""
    import torch

    is_script = isinstance(thing, torch.nn.Module) and any(map(is_optimizer, vars(thing).values()))
    return is_script or worth_entering_in_script(thing)


def _optimizers(runner: Runner, services: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the optimizers that the script has passed, by name."""
    given = {"optimizer": runner.optimizer} | {
        name: thing for name, thing in services.items() if any(map(is_optimizer, each(thing)))
    }
    return [
        (f"{service}.{part}" if part else service, one)
        for service, thing in given.items()
        for part, one in parts_of(thing).items()
        if param_groups(one)
    ]


def _type_name(thing: Any) -> str:
    if isinstance(thing, LooseWeights):
        return "weights"
    return type(thing.module if isinstance(thing, OtherModule) else thing).__name__


def script_optimizers(runner: Runner) -> list[Any]:
    """Return the optimizers that the trainer's step uses and the script has not passed."""
    known = _saved_otherwise(runner)
    handlers = [_owner(handler.function) for handler in _handlers(runner)]
    _, _, others = _in_step(runner)
    found = {id(one): one for one in (*filter(is_optimizer, handlers), *others.values()) if id(one) not in known}
    return list(found.values())


def _modules(runner: Runner) -> Iterator[tuple[str, Any]]:
    """Yield the modules of the models of a run, each with what its attributes are named after."""
    import torch

    for part, model in parts_of(runner.model).items():
        if isinstance(model, torch.nn.Module):
            for name, module in unwrapped(model).named_modules():
                yield ".".join([*filter(None, (part, name)), ""]), module


def held_by_handlers(runner: Runner) -> list[Held]:
    """Return what the handlers of the script hold, each object once."""
    return list(_held_by(_handlers(runner)))


def _held_by(handlers: Iterable[_Handler]) -> Iterator[Held]:
    seen: set[int] = set()
    for handler in handlers:
        roots = {"handler": handler.function, **{f"argument {i}": thing for i, thing in enumerate(handler.others)}}
        for place, thing in reach(roots, worth_entering_in_script, seen):
            yield handler.place, _variable(place), thing


def script_schedulers(runner: Runner) -> list[Any]:
    """Return the schedulers of the optimizer that the script has attached without passing them."""
    found = [each_object.thing for each_object in script_objects(runner) if driven_by(each_object.thing)]
    inner = [getattr(thing, "lr_scheduler", thing) for thing in found]
    return list({id(thing): thing for thing in inner}.values())


def hand_iterated(runner: Runner, held: Iterable[Held]) -> list[str]:
    """Return the iterators over data loaders that the script draws from itself, in words.

    Args:
        runner: The run.
        held: What `held_by_handlers` returns.
    """
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    found = []
    for place, variable, thing in held:
        iterates = isinstance(thing, _BaseDataLoaderIter) or _is_generator_over_data(thing)
        if iterates and thing is not runner.trainer._dataloader_iter:
            engine, event = place.split(".", 1)
            found.append(f"{variable!r} ({engine}, {event})")
    return found


def has_unknown_scheduler(runner: Runner, found: list[ScriptObject]) -> bool:
    """Return whether a scheduler of torch drives an optimizer of this run and nobody knows where it is."""
    from torch.optim.lr_scheduler import LRScheduler

    known = [thing for _, thing, _ in found] + [thing for given in runner.services.values() for thing in each(given)]
    if any(isinstance(thing, LRScheduler) or driven_by(thing) for thing in known):
        return False
    # A scheduler of torch wraps the step of its optimizer, which stays so when the scheduler is gone.
    wrapped = [one for one in each(runner.optimizer) if getattr(one.step, "_wrapped_by_lr_sched", False)]
    if not wrapped or not _living_schedulers(wrapped):
        return False
    gc.collect()
    return _living_schedulers(wrapped)


def _living_schedulers(optimizers: list[Any]) -> bool:
    """Return whether schedulers of torch exist for some of these optimizers, besides those of a search for a rate."""
    from torch.optim.lr_scheduler import LRScheduler

    # By their types only: looking at an object may have effects.
    schedulers = [thing for thing in gc.get_objects() if LRScheduler in type(thing).__mro__]
    of_run = [thing for thing in schedulers if type(thing).__module__ != "ignite.handlers.lr_finder"]
    return any(getattr(thing, "optimizer", None) is one for thing in of_run for one in optimizers)


def is_reset_each_epoch(metric: Any, trainer: Engine) -> bool:
    """Return whether a metric begins anew with each epoch of the trainer."""
    from ignite.engine import Events
    from ignite.metrics import MetricsLambda

    if isinstance(metric, MetricsLambda):
        # It has nothing but other metrics, which are attached too.
        return True
    entries = trainer._event_handlers.get(Events.EPOCH_STARTED, [])
    return any(_owner(unwrap(entry[0])) is metric for entry in entries)


def _owner(handler: Any) -> Any:
    """Return the object of which a handler is a method, or the handler."""
    return handler.__self__ if isinstance(handler, types.MethodType) else handler


def unwrap(handler: Any) -> Any:
    """Return the function or object of the script in a handler that Ignite has wrapped, as for a filter."""
    for _ in range(5):
        attributes = getattr(handler, "__dict__", {})
        parent = attributes.get("_parent")
        inner = parent() if isinstance(parent, weakref.ref) else attributes.get("__wrapped__")
        # A profiler of Ignite wraps all handlers while it runs.
        inner = attributes.get("_profiler_original", inner)
        if inner is None:
            return handler
        handler = inner
    return handler


def _handlers(runner: Runner) -> Iterator[_Handler]:
    trainer = runner.trainer
    for name, engine in _engines(runner):
        used = [item for item in engine._event_handlers.items() if item[1]]
        for event, entries in sorted(used, key=lambda item: str(getattr(item[0], "name", item[0]))):
            for handler, args, kwargs in list(entries):
                function = unwrap(handler)
                if not type(_owner(function)).__module__.startswith("ignite_hooks."):
                    others = tuple(thing for thing in itertools.chain(args, kwargs.values()) if not _is_engine(thing))
                    yield _Handler(f"{name}.{getattr(event, 'name', event)}", function, others)
    yield _Handler(STEP, trainer._process_function, ())


def _is_engine(thing: Any) -> bool:
    from ignite.engine import Engine

    return isinstance(thing, (Engine, weakref.ref))


def _saved_otherwise(runner: Runner) -> set[int]:
    import torch

    named = list(runner.services.values())
    services = [thing for given in named for thing in each(given)]
    given = [*named, *services, *runner.hooks.registered.values(), *runner.evaluators.values()]
    given += [getattr(runner.trainer.state, "scaler", None), runner.trainer.state.dataloader]
    given += [held for thing in given for held in _schedulers_in(thing)]
    modules = [part for thing in given if isinstance(thing, torch.nn.Module) for part in unwrapped(thing).modules()]
    saved = {id(thing) for thing in given if not isinstance(thing, torch.utils.data.DataLoader)}
    return saved | {*map(id, modules), id(runner.trainer.state.dataloader)}


_SCHEDULERS = ("scheduler", "schedulers", "lr_scheduler")


def _schedulers_in(thing: Any) -> list[Any]:
    """Return what a hook or scheduler has as its own: it saves the state of these with that of its own."""
    given = [getattr(thing, name, None) for name in _SCHEDULERS]
    return [scheduler for one in given if one is not None for scheduler in each(one)]


def _kind_of_handler(owner: Any, place: str) -> Kind | None:
    """Return what kind of object with a state a handler is, or is a method of."""
    import torch
    from ignite.engine import Engine
    from ignite.metrics import Metric

    if isinstance(owner, Metric):
        # Those of an evaluator begin anew with each evaluation.
        return "metric" if place.startswith("trainer.") else None
    if isinstance(owner, torch.nn.Module):
        return "stateful" if any(weight.requires_grad for weight in owner.parameters()) else None
    stateful = all(callable(getattr(type(owner), name, None)) for name in ("state_dict", "load_state_dict"))
    return "stateful" if stateful and not isinstance(owner, Engine) else None


def _kind_of_held(thing: Any, optimizers: list[Any]) -> Kind | None:
    """Return what kind of object with a state a handler holds: a scheduler, scaler, average, generator or loader."""
    if type(thing) in _NO_STATE:
        return None
    kinds = _kinds()
    if is_generator(thing):
        return "generator"
    if isinstance(thing, kinds.loader):
        return "loader"
    if isinstance(thing, kinds.average):
        return "stateful"
    if isinstance(thing, kinds.scaler):
        return "stateful" if thing.is_enabled() else None
    if not (theirs := driven_by(thing)):
        return None
    is_mine = any(one is other for one in theirs for other in optimizers)
    return "stateful" if is_mine or not optimizers else None


def driven_by(thing: Any) -> list[Any]:
    """Return the optimizers that a scheduler drives; nothing for what is no scheduler."""
    kinds = _kinds()
    if isinstance(thing, kinds.wrapper):
        return driven_by(thing.lr_scheduler)
    if isinstance(thing, kinds.several):
        return [one for part in thing.schedulers for one in driven_by(part)]
    # The class first: a look at the attributes of an engine would slow it down.
    kind = type(thing)
    steps = any(callable(getattr(kind, name, None)) for name in ("step", "get_param"))
    saves = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    if not (steps and saves) or isinstance(thing, kinds.trained):
        return []
    attributes = getattr(thing, "__dict__", None)
    one = attributes.get("optimizer") if isinstance(attributes, dict) else None
    return [one] if hasattr(one, "param_groups") else []


class _Kinds(NamedTuple):
    loader: Any
    average: Any
    scaler: Any
    wrapper: Any
    """A scheduler of Ignite with one of torch."""
    several: tuple[Any, ...]
    """Schedulers of Ignite that are made of others."""
    trained: tuple[Any, ...]


@lru_cache
def _kinds() -> _Kinds:
    """Return the classes of torch and Ignite that each object is compared with: an import for each would take time."""
    import torch
    from ignite.handlers.param_scheduler import ConcatScheduler, LRScheduler, ParamGroupScheduler
    from torch.optim.swa_utils import AveragedModel
    from torch.utils.data import DataLoader

    several, trained = (ConcatScheduler, ParamGroupScheduler), (torch.optim.Optimizer, torch.nn.Module)
    return _Kinds(DataLoader, AveragedModel, torch.amp.GradScaler, LRScheduler, several, trained)


def _is_generator_over_data(thing: Any) -> bool:
    """Return whether a thing is ``itertools.cycle`` or a generator of the script, which may draw from a loader."""
    from torch.utils.data import DataLoader

    if isinstance(thing, itertools.cycle):
        return True
    frame = thing.gi_frame if isinstance(thing, types.GeneratorType) else None
    return frame is not None and any(isinstance(value, DataLoader) for value in frame.f_locals.values())


def _variable(place: str) -> str:
    """Return the name of a variable of the script without the functions and cells that lead to it."""
    words = [word for word in place.split(".") if word not in ("handler", "globals", "__self__", "__func__")]
    return ".".join(words) or place
