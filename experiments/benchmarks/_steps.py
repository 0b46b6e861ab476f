"""Training steps to be timed, and the batch that they are of.

Keras is imported where it is used, see `_compiled`.
"""

from ._problems import middling_problems

CLIPNORM = 0.1


def real_batch(batch_size):
    """Problems of all modules, of middling and similar lengths."""
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    questions, answers = middling_problems(batch_size)
    tokenizer = CharacterTokenizer()
    target = tokenizer.encode_questions(answers)
    return (
        {
            "encoder_token_ids": tokenizer.encode_questions(questions),
            "decoder_token_ids": target[:, :-1],
        },
        target[:, 1:],
    )


def preset_trainer(preset, xla):
    from tpt_keras.models import SequenceToSequence
    from tpt_keras.training.transformer_trainer import TransformerTrainer

    model = SequenceToSequence.from_preset(preset)
    trainer = TransformerTrainer(model, global_clipnorm=CLIPNORM)
    trainer.compile(adam(), jit_compile=xla)
    return trainer


def adam(**kwargs):
    import keras

    return keras.optimizers.Adam(1e-4, beta_2=0.995, epsilon=1e-8, **kwargs)
