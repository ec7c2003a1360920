# One test program after another, one test at a time: they attach probes for the whole machine.
export RUST_BACKTRACE=1
failed=0
for program in /tests/*; do
    echo "== ${program##*/}"
    "$program" --test-threads 1 || failed=1
done
exit $failed
