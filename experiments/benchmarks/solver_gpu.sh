#!/usr/bin/env bash
# Trains the shipped solver on, on a machine with one GPU and no TensorFlow, and
# measures it, in a clone of the project with data/ and problems.jsonl
# (experiments/configs/solver_gpu.cfg, docs/data.md):
#   export KERAS_BACKEND=jax JAX_COMPILATION_CACHE_DIR=$HOME/.cache/jax
#   bash experiments/benchmarks/solver_gpu.sh measure   # a minute or two
#   bash experiments/benchmarks/solver_gpu.sh train     # in the background
#   bash experiments/benchmarks/solver_gpu.sh results   # waits for it
#   bash experiments/benchmarks/solver_gpu.sh home 0    # then 1, 2, ...
# SCHEDULE=two trains at a constant rate for four fifths of MINUTES, and linear
# to zero in the last, so another training can go on from models/constant.
set -euo pipefail

MINUTES=${MINUTES:-9.5}
SCHEDULE=${SCHEDULE:-one}
STEPS=${STEPS:-200}
FLAGS=${FLAGS:-}        # of every training, for example --batch_size=2048
OUT=${OUT:-results}     # copied home by you
RESULTS=models/results
train=(python3 -m experiments train --flagfile=solver_gpu.cfg $FLAGS)

# The 20 operations that take the most time in 60 steps.
trace() {
	# Command buffers would hide them.
	XLA_FLAGS="--xla_gpu_enable_command_buffer= ${XLA_FLAGS:-}" \
		python3 - "$@" <<-'PYTHON'
		import collections, glob, gzip, json, runpy, sys
		import jax, keras
		import tpt_keras.training.train as module

		class Trace(keras.callbacks.Callback):
		    def on_epoch_begin(self, epoch, logs=None):
		        if epoch == 1:
		            # A trace keeps the first million of its events.
		            options = jax.profiler.ProfileOptions()
		            options.python_tracer_level = options.host_tracer_level = 0
		            jax.profiler.start_trace(
		                "models/trace", profiler_options=options
		            )

		    def on_epoch_end(self, epoch, logs=None):
		        if epoch == 1:
		            jax.profiler.stop_trace()

		train = module.train
		module.train = lambda *arguments, **options: train(
		    *arguments, callbacks=[Trace()], **options
		)
		sys.argv[1:1] = ["train"]
		try:
		    runpy.run_module("experiments", run_name="__main__", alter_sys=True)
		except SystemExit as end:
		    if end.code:
		        raise
		[path] = glob.glob("models/trace/**/*.trace.json.gz", recursive=True)
		events = json.load(gzip.open(path))["traceEvents"]
		streams = {
		    (event["pid"], event["tid"])
		    for event in events
		    if event.get("name") == "thread_name"
		    and "Stream" in event["args"]["name"]
		}
		milliseconds = collections.Counter()
		for event in events:
		    if (event.get("pid"), event.get("tid")) in streams and "dur" in event:
		        milliseconds[event["name"]] += event["dur"] / 1e3
		print(f"{milliseconds.total():.1f} ms in all")
		for name, time in milliseconds.most_common(20):
		    print(f"{time:10.1f} ms {name}")
	PYTHON
}

# Examples a second and the share of the time that the GPU is busy, with more of
# XLA's flags, whose steps are compiled anew:
#   ... steps merger --xla_gpu_dot_merger_threshold_mb=512
steps() {
	local name=$1 flags=$2
	rm -rf "models/$name"
	nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits \
		--loop-ms=500 >"$RESULTS/$name.busy" 2>&1 & local busy=$!
	XLA_FLAGS="${flags:+$flags }${XLA_FLAGS:-}" "${train[@]}" --model_dir="models/$name" \
		--schedule=constant --train_minutes=0 --warmup_steps=10 \
		--train_steps="$STEPS" --steps_per_checkpoint=$((STEPS / 2)) \
		--validation_examples=56 >"$RESULTS/$name.txt" 2>&1 || true
	kill $busy 2>/dev/null || true
	echo "$name [$flags]: $(grep -o '[0-9]* ex/s' "$RESULTS/$name.txt" | tail -1)," \
		"busy $(tail -n 6 "$RESULTS/$name.busy" | tr '\n' ' ')" |
		tee -a "$RESULTS/speed.txt"
}

measure() {
	rm -rf models/trace models/traced
	trace --flagfile=solver_gpu.cfg $FLAGS --model_dir=models/traced \
		--schedule=constant --train_minutes=0 --warmup_steps=10 \
		--train_steps=180 --steps_per_checkpoint=60 \
		--validation_examples=56 2>&1 | tee "$RESULTS/trace.txt" | tail -n 21
	steps plain ""
}

training() {
	local last=("${train[@]}" --seed=1 --train_minutes="$MINUTES")
	if [ "$SCHEDULE" = two ]; then
		local most rest
		most=$(python3 -c "print(round(0.8 * $MINUTES, 2))")
		rest=$(python3 -c "print(round(0.2 * $MINUTES, 2))")
		"${train[@]}" --seed=1 --schedule=constant --train_minutes="$most" \
			--model_dir=models/constant
		last=("${train[@]}" --seed=2 --warmup_steps=50 --train_minutes="$rest"
			--init_from=models/constant)
	fi
	"${last[@]}" --model_dir=models/solver
}

results() {
	while [ -e models/running ]; do sleep 1; done
	# What is there comes home, whatever fails.
	set +e
	python3 -m experiments evaluate --model=models/solver --modules=all \
		--dataset=text_pairs --data_dir=problems.jsonl \
		--splits=interpolate,extrapolate 2>&1 | tee "$RESULTS/evaluation.txt"
	python3 -m experiments compress --model=models/solver \
		--compressed_dir=models/compressed
	tar --create --file=- models/compressed models/results \
		models/*/metrics.jsonl models/*/config.json models/*/evaluations.jsonl \
		>models/first.tar
	tar --create --file=- models/solver/model.keras models/constant/checkpoints \
		>models/second.tar 2>/dev/null
	rm -rf models/parts && mkdir models/parts
	for each in first second; do
		split --bytes=15M --numeric-suffixes models/$each.tar models/parts/$each-
	done
	(cd models/parts && sha256sum ./* >"../results/parts.sha256")
	cp models/results/*.txt models/results/parts.sha256 "$OUT"
	ls models/parts
}

# Four parts; `cat first-* | tar x` and `cat second-* | tar x` join them at home.
home() {
	ls models/parts | tail --lines=+$((4 * $1 + 1)) | head -n 4 |
		while read -r part; do cp "models/parts/$part" "$OUT"; done
}

mkdir -p "$RESULTS" "$OUT"
case $1 in
train)
	touch models/running
	# A session of its own outlives this command; a training that fails ends.
	setsid nohup bash -c 'bash "$0" training >"$1" 2>&1; rm -f models/running' \
		"$0" "$RESULTS/training.txt" </dev/null >/dev/null 2>&1 &
	;;
*) "$@" ;;
esac
