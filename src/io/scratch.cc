#include "src/io/scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "spillway/error.h"
#include "src/base/hash.h"

namespace spillway {
namespace {

ScratchLayout Checked(const ScratchLayout& layout) {
  SPILLWAY_CHECK(layout.num_layers() > 0 && layout.slots_per_layer > 0);
  SPILLWAY_CHECK(std::ranges::min(layout.blocks_per_slot) > 0 && layout.block_bytes > 0);
  SPILLWAY_CHECK(layout.block_bytes % kDiskBlockBytes == 0);
  return layout;
}

std::vector<int64_t> FirstBlocks(const ScratchLayout& layout) {
  std::vector<int64_t> first;
  int64_t blocks = 0;
  for (const int64_t per_slot : layout.blocks_per_slot) {
    first.push_back(blocks);
    blocks += layout.slots_per_layer * per_slot;
  }
  return first;
}

}  // namespace

int64_t ScratchLayout::num_blocks() const {
  return slots_per_layer *
         std::accumulate(blocks_per_slot.begin(), blocks_per_slot.end(), int64_t{0});
}

Scratch::Scratch(const DiskFolder& folder, const ScratchLayout& layout, uint64_t run_id,
                 DiskMode mode)
    : layout_(Checked(layout)),
      first_blocks_(FirstBlocks(layout)),
      run_id_(run_id),
      file_(DiskFile::CreateScratch(folder, layout.file_bytes(), mode)),
      blocks_(std::make_unique<Block[]>(static_cast<std::size_t>(layout.num_blocks()))) {}

int64_t Scratch::TableBytes(const ScratchLayout& layout) {
  return layout.num_blocks() * static_cast<int64_t>(sizeof(Block));
}

int64_t Scratch::FirstBlock(const ScratchRun& run) const {
  SPILLWAY_CHECK(run.layer >= 0 && run.layer < layout_.num_layers());
  SPILLWAY_CHECK(run.slot >= 0 && run.slot < layout_.slots_per_layer);
  SPILLWAY_CHECK(run.first_block >= 0 && run.num_blocks > 0);
  const auto layer = static_cast<std::size_t>(run.layer);
  const int64_t per_slot = layout_.blocks_per_slot[layer];
  SPILLWAY_CHECK(run.num_blocks <= per_slot - run.first_block);
  return first_blocks_[layer] + run.slot * per_slot + run.first_block;
}

std::span<Scratch::Block> Scratch::Blocks(const ScratchRun& run) const {
  return {&blocks_[static_cast<std::size_t>(FirstBlock(run))],
          static_cast<std::size_t>(run.num_blocks)};
}

void Scratch::Move(const ScratchRun& run, State from, State to) {
  for (Block& block : Blocks(run)) {
    State found = from;
    SPILLWAY_CHECK(block.state.compare_exchange_strong(found, to, std::memory_order_acq_rel));
  }
}

DiskRequest Scratch::Request(DiskOp op, const ScratchRun& run, std::span<std::byte> memory) const {
  SPILLWAY_CHECK(static_cast<int64_t>(memory.size()) == run.num_blocks * layout_.block_bytes);
  return {op, &file_, FirstBlock(run) * layout_.block_bytes, memory};
}

// `block` counts from the run's first.
uint64_t Scratch::Tag(const ScratchRun& run, int64_t block,
                      std::span<const std::byte> bytes) const {
  const std::array<uint64_t, 5> identity = {run_id_, static_cast<uint64_t>(run.layer),
                                            static_cast<uint64_t>(run.slot),
                                            Blocks(run)[static_cast<std::size_t>(block)].generation,
                                            static_cast<uint64_t>(run.first_block + block)};
  const auto size = static_cast<std::size_t>(layout_.block_bytes);
  return BlockHash(bytes.subspan(static_cast<std::size_t>(block) * size, size),
                   BlockHash(std::as_bytes(std::span(identity))));
}

DiskRequest Scratch::BeginWrite(const ScratchRun& run, std::span<std::byte> memory) {
  const DiskRequest request = Request(DiskOp::kWrite, run, memory);
  const std::span<Block> blocks = Blocks(run);
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    State before = blocks[at].state.load(std::memory_order_acquire);
    SPILLWAY_CHECK(before == State::kEmpty || before == State::kValid);
    SPILLWAY_CHECK(blocks[at].state.compare_exchange_strong(before, State::kWriting,
                                                            std::memory_order_acq_rel));
    ++blocks[at].generation;
    blocks[at].tag = Tag(run, static_cast<int64_t>(at), memory);
  }
  return request;
}

void Scratch::EndWrite(const ScratchRun& run) { Move(run, State::kWriting, State::kValid); }

void Scratch::DropWrite(const ScratchRun& run) { Move(run, State::kWriting, State::kEmpty); }

DiskRequest Scratch::BeginRead(const ScratchRun& run, std::span<std::byte> memory) {
  const DiskRequest request = Request(DiskOp::kRead, run, memory);
  Move(run, State::kValid, State::kReading);
  return request;
}

void Scratch::EndRead(const ScratchRun& run, std::span<const std::byte> memory) {
  SPILLWAY_CHECK(static_cast<int64_t>(memory.size()) == run.num_blocks * layout_.block_bytes);
  const std::span<Block> blocks = Blocks(run);
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    SPILLWAY_CHECK(blocks[at].state.load(std::memory_order_acquire) == State::kReading);
    if (Tag(run, static_cast<int64_t>(at), memory) == blocks[at].tag) continue;
    Move(run, State::kReading, State::kValid);
    ThrowCorrupt(run, static_cast<int64_t>(at));
  }
  Move(run, State::kReading, State::kValid);
}

void Scratch::DropRead(const ScratchRun& run) { Move(run, State::kReading, State::kValid); }

void Scratch::Clear(const ScratchRun& run) {
  for (Block& block : Blocks(run)) {
    State before = block.state.load(std::memory_order_acquire);
    SPILLWAY_CHECK(before == State::kEmpty || before == State::kValid);
    SPILLWAY_CHECK(
        block.state.compare_exchange_strong(before, State::kEmpty, std::memory_order_acq_rel));
    ++block.generation;
  }
}

void Scratch::ClearAll() {
  for (int64_t at = 0; at < layout_.num_blocks(); ++at) {
    Block& block = blocks_[static_cast<std::size_t>(at)];
    block.state.store(State::kEmpty, std::memory_order_release);
    ++block.generation;
  }
}

void Scratch::ThrowCorrupt(const ScratchRun& run, int64_t block) const {
  throw Error(ErrorCode::kCorrupt,
              fmt::format("{}: block {} of layer {}, slot {}, generation {} came back from disk "
                          "with other bytes than were written{}; check the disk",
                          file_.name(), run.first_block + block, run.layer, run.slot,
                          Blocks(run)[static_cast<std::size_t>(block)].generation,
                          file_.Changed() ? " (the file's size changed)" : ""));
}

}  // namespace spillway
