# The job with a recording of it, as `run` does it outside. What comes of it goes to the disk when all is over, since
# the disk is slow.
device=/device
made=/tmp/out
mkdir -p $device $made
cp /libsim_cuda.so $device/libcuda.so.1
cp /libsim_nvml.so $device/libnvidia-ml.so.1
printf "WHYIDLE_SIM=/tmp/device\nWHYIDLE_SIM_TRUTH=$made/truth.jsonl\n$settings" > $device/sim.conf

until_there() { # FILE PID
    until [ -s "$1" ]; do
        kill -0 "$2" || return 1
        sleep 0.2
    done
}

run() {
    PYTHONDONTWRITEBYTECODE=1 python3 /job/case.py $case --cuda $device/libcuda.so.1 --data "$disk/data" \
        --ready /tmp/ready --go /tmp/go --result $made/result.json > $made/job.log 2>&1 &
    job=$!
    until_there /tmp/ready $job || return 3
    if [ $traced = 1 ]; then
        whyidle record --pid $job --nvml $device/libnvidia-ml.so.1 $record -o $made/trace.whyidle 2> $made/record.log &
        recording=$!
        until_there $made/trace.whyidle $recording || return 4
        # Tables are made, libraries searched, the driver's calls attached.
        sleep 20
    fi
    : > /tmp/go
    until_there $made/result.json $job || return 3
    if [ $traced = 1 ]; then
        kill -INT $recording
        wait $recording || return 4
    fi
    kill -TERM $job
    wait $job || return 3
}

run
status=$?
cp -r $made "$disk/$out"
exit $status
