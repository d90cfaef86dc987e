// The queue of commands as the GPU compiles it. Its reader is a CPU, so payload and commit are
// stores of system scope, the commit comes last and is a release, and the tail is acquired from
// there. Only what GPU threads alone share has GPU scope: the head, and the tail as one of them saw
// it, which it tells the others with a release.
// expect: (?s)(st\.relaxed\.sys\.b64.*){3}st\.release\.sys\.b64
// expect: (?s)ld\.acquire\.gpu\.b64.*ld\.acquire\.sys\.b64.*st\.release\.gpu\.b64
// expect: atom\.add\.relaxed\.gpu\.u64
// forbid: (st|ld)\.relaxed\.gpu
// forbid: fence|membar
#include "command/queue.h"

__global__ void push(mkernel::CommandQueue queue, mkernel::Command command, mkernel::Watchdog dog,
                     bool* pushed) {
  *pushed = queue.push(command, dog);
}
