#!/usr/bin/env bash
# Runs the suite four times, each under several conditions at once: none of them may change a result. About an hour.
#
#   tests/everywhere.sh                  all four
#   tests/everywhere.sh 2                one of them
#   tests/everywhere.sh 3 tests/cli      one of them, on some of the tests
#
# PYTHON and JOBS choose the interpreter (.venv/bin/python) and the number of processes (2).
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-$PWD/.venv/bin/python}
jobs=${JOBS:-2}
chosen=${1:-1 2 3 4}
[ $# -gt 0 ] && shift
tests=("$@")
work=$(mktemp -d)
busy=()
failed=0

clean_up() {
	[ ${#busy[@]} -gt 0 ] && kill "${busy[@]}" 2>/dev/null
	chmod -R u+w "$work" 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

# suite NAME COMMAND...: the tests, started by a command such as `env A=1`.
suite() {
	local name=$1 status=0
	shift
	echo "== $name"
	"$@" "$python" -m pytest -q -p no:cacheprovider -n "$jobs" --dist worksteal "${tests[@]}" || status=$?
	[ $status = 0 ] && echo "== passed: $name" || { echo "== FAILED ($status): $name"; failed=1; }
}

oldest_kernels() {
	suite "1: kernels of the oldest CPU, C locale" env ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
		ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem LC_ALL=C
}

# ATEN_CPU_CAPABILITY alone leaves the matrix products as they are: each library has its own variable.
other_locale() {
	mkdir -p "$work/locale"
	localedef -i tr_TR -f UTF-8 "$work/locale/tr_TR.UTF-8" 2>/dev/null || echo "The Turkish locale could not be made."
	suite "2: AVX2 kernels, Turkish locale, other side of the date line, random order" env ATEN_CPU_CAPABILITY=avx2 \
		MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell LOCPATH="$work/locale" \
		LC_ALL=tr_TR.UTF-8 TZ=Pacific/Kiritimati RANDOM_ORDER="${RANDOM_ORDER:-$RANDOM}"
}

# A copy of the project that its user cannot write to, with an environment that borrows the installed packages.
other_user() {
	local packages interpreter copy="$work/project" as=(env)
	packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	[ -d "$packages/pytest" ] || packages=$("$python" -c 'import pathlib, pytest; print(pathlib.Path(pytest.__file__).parents[1])')
	interpreter=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
	if [ "$(id -u)" = 0 ]; then
		as=(setpriv --reuid=65534 --regid=65534 --clear-groups env)
		# the home of root is closed to others, and an interpreter in it too
		"${as[@]}" "$interpreter" -c '' 2>/dev/null || interpreter=/usr/bin/$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
	fi
	"${as[@]}" "$interpreter" -c '' || { echo "== FAILED: no Python that another user can run"; failed=1; return; }
	chmod 755 "$work"
	mkdir -p "$copy" "$work/home" "$work/tmp" && chmod 777 "$work/home" "$work/tmp"
	git ls-files -z | xargs -0 cp --parents -t "$copy"
	git init -q "$copy" && git -C "$copy" add -A
	"$interpreter" -m venv --without-pip "$copy/.venv"
	printf '%s\n%s\n' "$copy/src" "$packages" > "$(echo "$copy"/.venv/lib/python*/site-packages)/project.pth"
	for script in "$(dirname "$python")"/*; do
		case $(basename "$script") in python* | activate* | Activate* | pip*) continue ;; esac
		sed "1s|^#!.*python.*|#!$copy/.venv/bin/python|" "$script" > "$copy/.venv/bin/$(basename "$script")"
		chmod 755 "$copy/.venv/bin/$(basename "$script")"
	done
	chmod -R a+rX,a-w "$copy"
	python="$copy/.venv/bin/python" jobs=1
	cd "$copy" || return
	suite "3: one core, another user, read-only project" "${as[@]}" HOME="$work/home" TMPDIR="$work/tmp" \
		PYTHONDONTWRITEBYTECODE=1 JUPYTER_PATH="$packages/../../../share/jupyter" taskset -c 0
}

busy_machine() {
	for _ in 1 2; do
		"$python" -c 'while True: pass' &
		busy+=($!)
	done
	suite "4: two busy loops beside it" env
	kill "${busy[@]}"
	busy=()
}

for number in $chosen; do
	case $number in
	1) oldest_kernels ;;
	2) other_locale ;;
	3) other_user_in_a_shell=$(other_user >&2; echo $failed) && failed=$((failed | other_user_in_a_shell)) ;;
	4) busy_machine ;;
	*) echo "There is no condition $number: 1, 2, 3 or 4." && exit 2 ;;
	esac
done
exit $failed
