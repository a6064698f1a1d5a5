#include "src/verbs/convert.h"

#include <fmt/format.h>

#include <string>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/size_text.h"
#include "src/base/terminal.h"
#include "src/base/thread_pool.h"
#include "src/report/progress.h"
#include "src/store/make_store.h"
#include "src/store/weight_reader.h"
#include "src/verbs/model_for.h"

namespace spillway {
namespace {

std::string Summary(const OpenedModel& model, const std::filesystem::path& path, double seconds) {
  const int64_t bytes = WeightBytes(model);
  return fmt::format("  {:<14}{} from {}, {} in {:.2f} s ({:.2f} GB/s)\n", "converted",
                     Printable(model.shape.name), model.checkpoint->format(), SizeText(bytes),
                     seconds, static_cast<double>(bytes) / std::max(seconds, 1e-9) / 1e9) +
         fmt::format("  {:<14}{}\n", "store", Printable(path.string()));
}

std::string CopiedText(const StoreSource& source) {
  std::string text = "copied:";
  for (const CompanionFile& companion : source.companions) text += " " + companion.name;
  return text + "\n";
}

// Makes the store. What writes it advises what runs can do about a full disk.
void WriteOutput(const Config& config, const StoreSource& source, ThreadPool& pool,
                 const StoreProgress& progress) {
  try {
    MakeStore(source, config.output,
              config.overwrite ? ExistingStore::kReplace : ExistingStore::kRefuse, pool, progress);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDiskSpace) throw;
    std::string what = error.what();
    for (const std::string_view other :
         {", give another --offload-dir", " or give another --offload-dir"}) {
      const std::size_t at = what.rfind(other);
      if (at != std::string::npos) what.replace(at, std::string::npos, " or give another --output");
    }
    throw Error(error.code(), what);
  }
}

}  // namespace

int RunConvert(const Config& config) {
  const OpenedModel model = ModelFor(config);
  const int num_threads = config.num_threads > 0 ? config.num_threads : NumPhysicalCores();
  ThreadPool pool(num_threads);
  const WeightReader reader(*model.checkpoint, model.weights, model.choice.nonfinite, num_threads);
  ProgressLine line(ProgressStreamOf(config));
  const StoreSource source = {model, ContentKey(model, line.NoteReads()), reader,
                              ReadCompanions(model.folder, model.tokenizer_folder)};
  if (config.verbosity == Verbosity::kVerbose) PrintTo(TerminalOf(config), CopiedText(source));
  line.Clear();
  const double begin_s = NowSeconds();
  WriteOutput(config, source, pool, [&](int64_t done, int64_t total) {
    line.Note(fmt::format("converting: {} of {}", SizeText(done), SizeText(total)));
  });
  line.Clear();
  PrintTo(TerminalOf(config), Summary(model, config.output, NowSeconds() - begin_s));
  return 0;
}

}  // namespace spillway
