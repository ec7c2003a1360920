# One test program after another, one test at a time: they attach probes for the whole machine.
export RUST_BACKTRACE=1
failed=0
echo "== what this kernel attaches"
/tests/probes_load-* --nocapture every_program || failed=1
for program in /tests/*; do
    echo "== ${program##*/}"
    "$program" --test-threads 1 || failed=1
done
exit $failed
