// An interrupted run's folder: OUT.part, OUT.journal and OUT.ahead, divided by NUL bytes; the
// records get checksums that are right.
#include <cstdint>
#include <string>

#include "src/answers/output_file.h"
#include "tests/fuzz/framed_lines.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  for (const char* name : {"out", "out.part", "out.journal", "out.ahead"}) folder.Remove(name);
  folder.Write("out.part", NextPart(bytes));
  folder.Write("out.journal", FramedLines(NextPart(bytes)));
  folder.Write("out.ahead", FramedLines(NextPart(bytes)));
  OutputFile file(folder.path() / "out", ExistingOutput::kResume);
  const RunManifest manifest = file.InterruptedRun().value_or(RunManifest());
  const CommitRecord last = file.Begin(manifest, [](std::string_view) {});
  file.TakeAhead();
  file.Write("{}\n");
  file.Commit(last.lines + 1);
  file.Finish();
}

}  // namespace spillway::fuzz
