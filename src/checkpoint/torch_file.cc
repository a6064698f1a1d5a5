#include "src/checkpoint/torch_file.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/file_kind.h"
#include "src/checkpoint/pickle_machine.h"
#include "src/checkpoint/torch_legacy.h"
#include "src/checkpoint/torch_zip.h"

namespace spillway {
namespace {

[[noreturn]] void ThrowUnsupported(const ModelFile& file, std::string_view what) {
  throw Error(ErrorCode::kModelUnsupported, fmt::format("{}: {}", Printable(file.name()), what));
}

// An attack in it is named for what it is.
[[noreturn]] void RefuseBarePickle(const ModelFile& file) {
  const std::string start = file.ReadStart(kMaxPickleBytes);
  PickleHeap heap;
  try {
    PickleMachine(start, heap, file.name()).Run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsafe) throw;
  }
  ThrowUnsupported(file,
                   "a bare pickle, not a file of torch.save; load it with "
                   "torch.load(weights_only=True) and save it with a recent torch.save");
}

[[noreturn]] void RefuseOtherKinds(const ModelFile& file) {
  const std::string start = file.ReadStart(512);
  if (start.starts_with('\x80') || start.starts_with("c")) RefuseBarePickle(file);
  if (start.size() == 512 && std::string_view(start).substr(257, 5) == "ustar") {
    ThrowUnsupported(file,
                     "PyTorch's tar format from before version 0.2; load it and save it with a "
                     "recent torch.save");
  }
  throw Error(ErrorCode::kModelMalformed, NotExpectedKind(file, "a PyTorch file"));
}

}  // namespace

WeightsFile ReadTorchFile(ModelFile file) {
  if (file.ReadStart(4) == "PK\x03\x04") return ReadTorchZip(std::move(file));
  if (IsTorchLegacy(file)) return ReadTorchLegacy(std::move(file));
  RefuseOtherKinds(file);
}

}  // namespace spillway
