// Holder of a lock of a whole file, for messages. Plain functions; any thread.
#pragma once

#include <string>

#include "src/base/descriptor.h"

namespace spillway {

// " (process 1234)" of this host that holds a flock of the open file or folder; "" where the kernel
// does not tell, or the holder is on another host.
std::string LockHolderText(const Descriptor& file);

}  // namespace spillway
