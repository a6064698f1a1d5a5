// Rate at which the disk gives the store that a run reads its weights from, measured before the
// first pass. A profile measured another file at another time: virtual disks were seen to give one
// file twice the rate of another, each of them steadily for minutes. Thread rule: one at a time.
#pragma once

#include <cstddef>
#include <span>

#include "src/io/disk_queue.h"
#include "src/store/store.h"

namespace spillway {

// Bytes per second of reads as the run does them, a tile's length each, several under way, checked;
// from the store's begin on for a quarter of a second and what is under way then. Not traced. 0
// where `memory` is too small to have several under way, or the disk fails: the run will tell.
// Requires: memory registered with the queue's backend or not, aligned to kTileAlignBytes, and used
// by nothing else. Throws: Error kInterrupted.
double MeasureStoreReads(const Store& store, DiskQueue& queue, std::span<std::byte> memory);

}  // namespace spillway
