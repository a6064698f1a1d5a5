// A converted model (store) read like any checkpoint: what is resident is loaded from it as from
// the folder that it was made from. Thread rule: const methods from any thread.
#pragma once

#include <memory>

#include "src/checkpoint/checkpoint.h"
#include "src/store/store.h"

namespace spillway {

// Tensors have their names and the types that they are held in. Bytes come from whole tiles, each
// verified after it was read; beside the caller's memory it takes one tile for each thread that
// reads, kept until FreeBuffers. Read also throws Error kCorrupt for a damaged tile, and
// kCpuMemory.
std::unique_ptr<Checkpoint> MakeStoreCheckpoint(std::unique_ptr<const Store> store);

}  // namespace spillway
