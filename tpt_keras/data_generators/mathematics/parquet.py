"""Parquet files of the problems, which need nothing of this package.

A folder has one file for each split and module, and a data card that tells
Hugging Face's `datasets` where the splits are:

    README.md
    train_easy/numbers__place_value.parquet
    interpolate/...
"""

import itertools
import json
import logging
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.archive import report_path
from tpt_keras.data_generators.mathematics.generator import SPLIT_ORDER
from tpt_keras.data_generators.mathematics.generator import QuestionFilter
from tpt_keras.data_generators.mathematics.modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.shards import question_key
from tpt_keras.data_generators.mathematics.task import CITATION
from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.files import write_text

COLUMNS = ("question", "answer", "module", "split", "source")
# Of a row group, which bounds the memory of writers and readers.
_ROWS_AT_ONCE = 100_000
_METADATA = b"tpt_keras"
_CARD = pathlib.Path(__file__).with_name("data_card.md")

logger = logging.getLogger(__name__)


def write_parquet(modules, root, folder):
    """Writes the problems of text files as Parquet files, with a card.

    A module has each question once in training and once in each evaluation
    split. No question of training is one of evaluation, in any of the modules.
    A module is written whole, so that an interrupted call resumes.

    Args:
        modules: Names of modules.
        root: Folder of their text files, in the official layout.
        folder: Folder to fill.

    Returns:
        Dict from modules to dicts from splits to numbers of problems.

    Raises:
        UsageError: If a text is damaged, or the folder has files of other
            modules or problems.
    """
    folder = pathlib.Path(folder)
    with folder_lock(folder, "writes Parquet files"):
        for partial in folder.glob(f"*/{PARTIAL}*"):  # of a killed process
            partial.unlink()
        sources = {module: _source(root, module) for module in modules}
        found = _read_counts(folder, sources)
        missing = [m for m in modules if found[m].keys() != set(_splits(m))]
        if missing:
            held_out = _evaluation_keys(root, modules)
        for module in missing:
            logger.info("Writing the Parquet files of %s.", module)
            found[module] = _write_module(
                root, folder, module, sources, held_out
            )
        write_text(folder / "README.md", _card(sources, found))
    return {
        module: {split: count["problems"] for split, count in splits.items()}
        for module, splits in found.items()
    }


def _splits(module):
    return [split for split in SPLITS if archive.split_module(split, module)]


def _path(folder, split, module):
    return folder / split / f"{module}.parquet"


def _source(root, module):
    """A text of all that a module's problems depend on."""
    report = report_path(root, module)
    if not report.exists():
        return archive.FOLDER
    with reading(report, "Remove it, and its module is generated again."):
        generated = json.loads(report.read_bytes())
        # Older versions noted the seed alone.
        return generated.get("source") or f"seed {generated['seed']}"


def _evaluation_keys(root, modules):
    return {
        question_key(question)
        for module in modules
        for split in _splits(module)
        if split in EVALUATION_SPLITS
        for question, _ in archive.read_problems(
            archive.text_path(root, split, module)
        )
    }


def _write_module(root, folder, module, sources, held_out):
    """Writes the files of a module and returns their counts by splits."""
    questions = QuestionFilter(held_out)
    counts = {}
    for split in SPLIT_ORDER:
        if split not in _splits(module):
            continue
        path = _path(folder, split, module)
        path.parent.mkdir(exist_ok=True)
        before = dict(questions.dropped)
        problems = (
            problem
            for problem in archive.read_problems(
                archive.text_path(root, split, module)
            )
            if questions.take(split, problem[0])
        )
        with whole_file(path) as partial:
            schema = pa.schema([(name, pa.string()) for name in COLUMNS])
            with pq.ParquetWriter(partial, schema, compression="zstd") as file:
                constants = (module, split, sources[module])
                number = _write_rows(file, problems, constants)
                counts[split] = {"problems": number} | {
                    reason: dropped - before[reason]
                    for reason, dropped in questions.dropped.items()
                }
                record = {"sources": sources, "counts": counts[split]}
                file.add_key_value_metadata({_METADATA: json.dumps(record)})
    return counts


def _write_rows(file, problems, constants):
    number = 0
    while rows := list(itertools.islice(problems, _ROWS_AT_ONCE)):
        columns = [pa.array(column) for column in zip(*rows)]
        columns += [pa.repeat(value, len(rows)) for value in constants]
        file.write_table(pa.table(columns, schema=file.schema))
        number += len(rows)
    return number


def _read_counts(folder, sources):
    """Counts of the files that are there, by modules and splits."""
    found = {module: {} for module in sources}
    for path in folder.glob("*/*.parquet"):
        with reading(path, "Remove it, and it is written again."):
            record = json.loads(pq.read_metadata(path).metadata[_METADATA])
        if record["sources"] != sources:
            raise UsageError(
                f"The file {str(path)!r} is of other `modules` or problems, "
                "whose evaluation questions decide what is left for training. "
                "Remove its folder, or ask for the same.",
                field="modules",
                path=path,
            )
        found[path.stem][path.parent.name] = record["counts"]
    return found


def _card(sources, found):
    """The data card, with the configurations for `datasets` at its head."""
    every = {split: f"{split}/*.parquet" for split in SPLITS}
    present = {split for splits in found.values() for split in splits}
    configs = [
        {"config_name": "all", "default": True}
        | _data_files({s: every[s] for s in SPLITS if s in present})
    ] + [
        {"config_name": module}
        | _data_files({s: f"{s}/{module}.parquet" for s in _splits(module)})
        for module in found
    ]
    return _CARD.read_text().format(
        configs="\n".join(f"  - {json.dumps(config)}" for config in configs),
        table="\n".join(_row(module, found[module]) for module in found),
        sources="\n".join(f"- `{s}`" for s in sorted(set(sources.values()))),
        citation=CITATION.strip(),
    )


def _data_files(paths):
    return {
        "data_files": [
            {"split": split, "path": path} for split, path in paths.items()
        ]
    }


def _row(module, counts):
    problems = [
        f"{counts[split]['problems']:,}" if split in counts else ""
        for split in SPLITS
    ]
    dropped = [
        f"{sum(each[reason] for each in counts.values()):,}"
        for reason in ("duplicates", "also_in_evaluation")
    ]
    return f"| {' | '.join([module, *problems, *dropped])} |"
