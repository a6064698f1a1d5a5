// Scratch: the spill area for KV and activations, a reserved file without a name, divided in slots
// of blocks. Hands out disk requests and checks what came back; moves nothing itself.
// Thread rule: any thread; a block belongs to one of them from Begin to End.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/io/disk_file.h"
#include "src/io/disk_transfer.h"

namespace spillway {

// Slot (layer, slot) holds blocks_per_slot[layer] blocks, one after the other; the slots of a layer
// are neighbours.
struct ScratchLayout {
  int64_t slots_per_layer = 0;
  std::vector<int64_t> blocks_per_slot;  // [layer]
  int64_t block_bytes = 0;               // a multiple of kDiskBlockBytes; what one tag covers

  int64_t num_layers() const { return static_cast<int64_t>(blocks_per_slot.size()); }
  int64_t num_blocks() const;
  int64_t file_bytes() const { return num_blocks() * block_bytes; }
};

// A run of whole blocks of one slot.
struct ScratchRun {
  int64_t layer = 0;
  int64_t slot = 0;
  int64_t first_block = 0;
  int64_t num_blocks = 0;
};

// A block is empty, being written, valid or being read; every other step than the ones below is our
// own bug and a CHECK:
//   BeginWrite: empty or valid -> writing
//   EndWrite: writing -> valid
//   DropWrite: writing -> empty
//   BeginRead: valid -> reading
//   EndRead, DropRead: reading -> valid
//   Clear: empty or valid -> empty
// A tag binds the bytes to run, layer, slot, generation (how often the block was written or
// cleared) and block, so that a block that is stale, misdirected, empty or of another run is found
// out.
class Scratch {
 public:
  // Throws: Error kDiskSpace, before anything is left behind; kPath, kIo, kSystemLimit.
  Scratch(const DiskFolder& folder, const ScratchLayout& layout, uint64_t run_id,
          DiskMode mode = DiskMode::kDirect);

  // Memory of the table of tags, to be planned for.
  static int64_t TableBytes(const ScratchLayout& layout);

  const ScratchLayout& layout() const { return layout_; }
  const DiskFile& file() const { return file_; }

  // Tags the bytes, on this thread, and gives the request that writes them.
  // Requires: memory holds the run's blocks, and keeps them until the request is done.
  DiskRequest BeginWrite(const ScratchRun& run, std::span<std::byte> memory);
  void EndWrite(const ScratchRun& run);   // the request succeeded
  void DropWrite(const ScratchRun& run);  // it failed, or was never made

  // The request that reads the run's blocks into `memory`. Its bytes are good after EndRead.
  DiskRequest BeginRead(const ScratchRun& run, std::span<std::byte> memory);

  // Checks what the request, which succeeded, brought; may be called on the thread that uses it.
  // Throws: Error kCorrupt naming layer, slot, block and generation; the blocks are as before
  // BeginRead then, and may be read again.
  void EndRead(const ScratchRun& run, std::span<const std::byte> memory);
  void DropRead(const ScratchRun& run);  // it failed, or was never made

  // Forgets the run's blocks. Requires: none is being written or read.
  void Clear(const ScratchRun& run);

  // Forgets all blocks, also those whose write or read came to nothing. Requires: no request is
  // under way.
  void ClearAll();

 private:
  enum class State : uint8_t { kEmpty, kWriting, kValid, kReading };

  // The owner of a block's state owns tag and generation; handing over is by `state`.
  struct Block {
    uint64_t tag = 0;
    uint32_t generation = 0;
    std::atomic<State> state = State::kEmpty;
  };

  int64_t FirstBlock(const ScratchRun& run) const;
  std::span<Block> Blocks(const ScratchRun& run) const;
  void Move(const ScratchRun& run, State from, State to);
  DiskRequest Request(DiskOp op, const ScratchRun& run, std::span<std::byte> memory) const;
  uint64_t Tag(const ScratchRun& run, int64_t block, std::span<const std::byte> bytes) const;
  [[noreturn]] void ThrowCorrupt(const ScratchRun& run, int64_t block) const;

  ScratchLayout layout_;
  std::vector<int64_t> first_blocks_;  // [layer]
  uint64_t run_id_;
  DiskFile file_;
  std::unique_ptr<Block[]> blocks_;
};

}  // namespace spillway
