import threading, time, json, re, hashlib
def work(depth):
    if depth:
        return work(depth - 1)
    words = [str(i * 7919 % 10007) for i in range(2000)]
    words.sort(key=lambda w: (len(w), w))
    hashlib.sha256(json.dumps(words).encode()).digest()
    return sum(1 for w in words if re.match('.*9$', w))
def nap(depth):
    return nap(depth - 1) if depth else time.sleep(0.001)
def forever(what, depth):
    while True:
        what(depth)
threading.Thread(target=forever, args=(nap, 5), daemon=True).start()
print('ready', flush=True)
forever(work, 5)
