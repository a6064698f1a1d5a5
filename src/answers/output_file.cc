#include "src/answers/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "spillway/error.h"
#include "src/answers/output_stream.h"
#include "src/base/lock_holder.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

constexpr const char* kRunAttribute = "user.spillway.run";

std::string ReadRecords(const Descriptor& file, const std::string& name) {
  constexpr std::size_t kMaxBytes = 1U << 30;
  if (std::optional<std::string> text = ReadToEnd(file, kMaxBytes, name)) return *std::move(text);
  throw Error(ErrorCode::kCorrupt, fmt::format("{}: is no record of a run", Printable(name)));
}

[[noreturn]] void RefuseOtherRun(ErrorCode code, const std::string& journal,
                                 const RunManifest& then, const RunManifest& now) {
  constexpr std::size_t kMaxBytes = 270;  // an error's line has 300, with its code
  constexpr std::string_view kAdvice = "; give the same or --overwrite to start again";
  const std::string head = Printable(journal) + ": the interrupted run had another ";
  throw Error(code, fmt::format("{}{}{}", head,
                                DifferenceText(then, now, kMaxBytes - head.size() - kAdvice.size()),
                                kAdvice));
}

}  // namespace

std::filesystem::path JournalPathOf(const std::filesystem::path& output) {
  return output.string() + ".journal";
}

void OutputFile::HashDeleter::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

OutputFile::OutputFile(const std::filesystem::path& path, ExistingOutput existing)
    : path_(path),
      journal_name_(JournalPathOf(path).filename().string()),
      ahead_name_(path.filename().string() + ".ahead"),
      existing_(existing),
      replaces_(existing == ExistingOutput::kReplace) {
  file_ = OpenStream(path);
  if (file_.valid()) {
    if (existing != ExistingOutput::kResume) return;
    throw Error(ErrorCode::kFlag, fmt::format("--resume: --output {} is no file to go on with",
                                              Printable(path.string())));
  }
  place_ = PartFile(path);
  if (!place_.valid()) ThrowPathError(FolderOf(path).string());
  CheckPlace();
  if (goes_on() && HasLeftRun()) {
    ResumePart();
    return;
  }
  RemoveStalePart();
  goes_on() && Exists(place_.name()) ? TakeFinished() : Start();
}

OutputFile::~OutputFile() {
  const bool has_answers = num_bytes_ > 0 || (ahead_ && !ahead_->empty());
  if (in_place() || moved_ || keep_ || !file_.valid() || has_answers) return;
  place_.Remove(place_.part_name());
  RemoveRecords();
}

void OutputFile::RemoveRecords() const {
  if (journal_) place_.Remove(journal_name_);
  if (ahead_) place_.Remove(ahead_name_);
}

void OutputFile::CheckPlace() {
  if (!place_.has_name()) {
    throw Error(ErrorCode::kPath, fmt::format("{}: is no file name; --output takes a file",
                                              Printable(path_.string())));
  }
  const auto status = place_.StatusOf(place_.name());
  if (!status) {
    if (errno != ENOENT) ThrowPathError(path_.string());
    return;
  }
  if (const char* what = WhyNoFile(*status)) {
    throw Error(ErrorCode::kPath, fmt::format("{}: is {}; give --output the path of a file",
                                              Printable(path_.string()), what));
  }
  if (existing_ == ExistingOutput::kRefuse) {
    throw Error(
        ErrorCode::kOutputExists,
        fmt::format("{}: exists; give --overwrite or another --output", Printable(path_.string())));
  }
}

void OutputFile::ThrowPathError(const std::string& name) const {
  ThrowSystemError(errno, fmt::format("{}: cannot be written", Printable(name)), ErrorCode::kPath,
                   "give --output a writable place");
}

// The .part of an earlier run, locked.
Descriptor OutputFile::OpenExistingPart(int access) const {
  const std::string name = Printable(part_path().string());
  const auto status = place_.StatusOf(place_.part_name());
  if (!status || WhyNoFile(*status) != nullptr) {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is no regular file but would be written; remove it", name));
  }
  Descriptor part = place_.Open(place_.part_name(), access);
  if (part.valid() && ::flock(part.get(), LOCK_EX | LOCK_NB) != 0) ThrowInUse();
  return part;
}

void OutputFile::RemoveStalePart() {
  if (!Exists(place_.part_name())) return;
  const Descriptor part = OpenExistingPart(O_RDONLY);
  const auto status = place_.StatusOf(place_.part_name());
  const bool has_lines = status && status->st_size > 0;
  if (has_lines && existing_ != ExistingOutput::kReplace) {
    throw Error(ErrorCode::kOutputExists,
                fmt::format("{}: holds the finished lines of an interrupted run; leave --no-resume "
                            "out to go on, or give --overwrite",
                            Printable(part_path().string())));
  }
  if (!place_.Remove(place_.part_name())) ThrowPathError(part_path().string());
}

// Left by a run that was killed just before it removed it, or whose .part went away.
void OutputFile::RemoveStale(const std::filesystem::path& path,
                             bool (*is_ours)(std::string_view)) const {
  const std::string file_name = path.filename().string();
  if (!Exists(file_name)) return;
  const std::string name = path.string();
  const Descriptor file = place_.Open(file_name, O_RDONLY);
  struct stat status {};
  const bool regular = file.valid() && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  // A first line without its end was never whole.
  if (!regular || (status.st_size > 0 && !is_ours(ReadRecords(file, name)))) {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is in the place of the run's records and none; move it away",
                            Printable(name)));
  }
  if (!place_.Remove(file_name)) ThrowPathError(name);
}

void OutputFile::ThrowInUse() const {
  const Descriptor part = place_.Open(place_.part_name(), O_RDONLY);
  throw Error(ErrorCode::kRunInUse,
              fmt::format("{}: another run{} is writing it; wait or give another --output",
                          Printable(part_path().string()), LockHolderText(part)));
}

// A file beside the output that was not there.
Descriptor OutputFile::Create(const std::filesystem::path& path) const {
  Descriptor file = place_.Create(path.filename().string());
  if (!file.valid() && errno == EEXIST) ThrowInUse();  // another run came in between
  if (!file.valid()) ThrowPathError(path.string());
  return file;
}

void OutputFile::OpenPart() {
  Descriptor file = Create(part_path());
  // Without locks (some network filesystems) two runs on one output are only caught by O_EXCL. One
  // that came between the two calls has taken the file for a stale one, and removed it.
  const bool taken = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat status {};
  if (taken || (::fstat(file.get(), &status) == 0 && status.st_nlink == 0)) ThrowInUse();
  file_ = std::move(file);
}

void OutputFile::Start() {
  RemoveStale(journal_path(), IsJournal);
  RemoveStale(ahead_path(), IsAhead);
  OpenPart();
}

ErrorCode OutputFile::of_another_run() const {
  return existing_ == ExistingOutput::kResume ? ErrorCode::kResume : ErrorCode::kOutputExists;
}

// A .part with lines, or with a journal: without either it was left before the run had begun.
bool OutputFile::HasLeftRun() const {
  const auto part = place_.StatusOf(place_.part_name());
  return part && (part->st_size > 0 || Exists(journal_name_));
}

void OutputFile::ResumePart() {
  file_ = OpenExistingPart(O_RDWR);
  if (!file_.valid()) ThrowPathError(part_path().string());
  keep_ = true;
}

void OutputFile::TakeFinished() {
  finished_ = true;
  std::string digest(16, '\0');
  is_marked_ = ::getxattr(path_.c_str(), kRunAttribute, digest.data(), digest.size()) > 0;
  if (is_marked_) return SweepRecords();
  // Nobody's, as far as anyone can tell: known before a model is read.
  if (!Exists(journal_name_)) RefuseFinished();
}

void OutputFile::RefuseFinished() const {
  throw Error(of_another_run(),
              fmt::format("{}: is whole but not known as the output of this run (same input, model "
                          "and flags); give --overwrite or another --output",
                          Printable(path_.string())));
}

// Removes the records of a run that was killed between giving the output its name and removing
// them. The .part is made for the time, since who has it has the records; where it cannot be made,
// and where they are none, they stay.
void OutputFile::SweepRecords() {
  if (!Exists(journal_name_) && !Exists(ahead_name_)) return;
  try {
    OpenPart();
    RemoveStale(journal_path(), IsJournal);
    RemoveStale(ahead_path(), IsAhead);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the output is whole without them
  }
  if (!file_.valid()) return;
  place_.Remove(place_.part_name());
  file_ = Descriptor();
}

bool OutputFile::IsOf(const RunManifest& manifest) const {
  if (!is_marked_) {
    const std::optional<JournalContent> journal = ReadJournal();
    return journal && journal->manifest == manifest;
  }
  std::string digest(16, '\0');
  const ssize_t size = ::getxattr(path_.c_str(), kRunAttribute, digest.data(), digest.size());
  return size == static_cast<ssize_t>(digest.size()) && digest == ManifestDigest(manifest);
}

// Of a run that is to be gone on with.
std::optional<JournalContent> OutputFile::ReadJournal() const {
  if (in_place() || !goes_on() || !Exists(journal_name_)) return {};
  const std::string name = journal_path().string();
  const Descriptor file = place_.Open(journal_name_, O_RDONLY);
  if (!file.valid()) ThrowPathError(name);
  return ParseJournal(ReadRecords(file, name), name);
}

std::optional<RunManifest> OutputFile::InterruptedRun() const {
  std::optional<JournalContent> content = ReadJournal();
  if (!content) return {};
  return std::move(content->manifest);
}

CommitRecord OutputFile::Begin(const RunManifest& manifest,
                               const std::function<void(std::string_view)>& on_line) {
  SPILLWAY_CHECK(!journal_ && num_bytes_ == 0 && !finished_);
  if (in_place()) return {};
  hash_.reset(XXH3_createState());
  if (hash_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(hash_.get());
  CommitRecord last;
  if (goes_on() && Exists(journal_name_)) last = ResumeJournal(manifest, on_line);
  if (!journal_) StartJournal(manifest);
  run_digest_ = ManifestDigest(manifest);
  ResumeAhead();
  is_marked_ =
      ::fsetxattr(file_.get(), kRunAttribute, run_digest_.data(), run_digest_.size(), 0) == 0;
  return last;
}

void OutputFile::StartJournal(const RunManifest& manifest) {
  // A .part without a journal was never committed; with bytes in it, it is not of such a run.
  if (::lseek(file_.get(), 0, SEEK_END) > 0) {
    throw Error(of_another_run(),
                fmt::format("{}: has lines but no journal that says of which run; give --overwrite "
                            "to start again",
                            Printable(part_path().string())));
  }
  RemoveStale(journal_path(), IsJournal);
  RemoveStale(ahead_path(), IsAhead);
  journal_ = Journal::Begin(Create(journal_path()), journal_path().string(),
                            {manifest, replaces_, command_, {}, 0});
  spillway::Sync(place_.folder(), path_.string());
}

// Leaves no journal where not even its manifest was whole.
CommitRecord OutputFile::ResumeJournal(const RunManifest& manifest,
                                       const std::function<void(std::string_view)>& on_line) {
  const std::string name = journal_path().string();
  Descriptor file = place_.Open(journal_name_, O_RDWR);
  if (!file.valid()) ThrowPathError(name);
  const std::optional<JournalContent> content = ParseJournal(ReadRecords(file, name), name);
  if (!content) return {};
  if (content->manifest != manifest)
    RefuseOtherRun(of_another_run(), name, content->manifest, manifest);
  replaces_ = content->replaces;
  if (Exists(place_.name()) && !replaces_) {
    throw Error(ErrorCode::kOutputExists,
                fmt::format("{}: has appeared since the run began; move it away",
                            Printable(path_.string())));
  }
  Verify(*content, on_line);
  journal_.emplace(std::move(file), name, *content);
  return content->commits.empty() ? CommitRecord{} : content->commits.back();
}

// Reads the committed bytes once, commit by commit; no line is given out before its hash agrees.
void OutputFile::Verify(const JournalContent& content,
                        const std::function<void(std::string_view)>& on_line) {
  const std::string name = part_path().string();
  int64_t lines = 0;
  for (const CommitRecord& commit : content.commits) {
    const std::string text = ReadPart(commit.bytes - num_bytes_);
    XXH3_64bits_update(hash_.get(), text.data(), text.size());
    if (XXH3_64bits_digest(hash_.get()) != commit.hash) {
      throw Error(ErrorCode::kResume,
                  fmt::format("{}: lines {} to {} are not what the run wrote; restore them or give "
                              "--overwrite to start again",
                              Printable(name), lines + 1, commit.lines));
    }
    num_bytes_ = commit.bytes;
    lines = commit.lines;
    for (std::size_t begin = 0, end = 0; on_line && begin < text.size(); begin = end) {
      end = std::min(text.size(), text.find('\n', begin) + 1);
      on_line(std::string_view(text).substr(begin, end - begin));
    }
  }
  if (::ftruncate(file_.get(), num_bytes_) != 0 || ::lseek(file_.get(), num_bytes_, SEEK_SET) < 0) {
    ThrowSystemError(errno, fmt::format("{}: cannot be cut", Printable(name)), ErrorCode::kIo,
                     "check the disk");
  }
}

// The next `size` bytes.
std::string OutputFile::ReadPart(int64_t size) const {
  const std::string name = part_path().string();
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || status.st_size < num_bytes_ + size) {
    throw Error(ErrorCode::kResume,
                fmt::format("{}: ends at byte {} but {} were committed; restore it or give "
                            "--overwrite to start again",
                            Printable(name), status.st_size, num_bytes_ + size));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t got = ReadSome(file_, text.data() + at, text.size() - at, name);
    if (got == 0) {
      throw Error(ErrorCode::kResume,
                  fmt::format("{}: was cut while it was read", Printable(name)));
    }
    at += got;
  }
  return text;
}

void OutputFile::Write(std::string_view lines) {
  SPILLWAY_CHECK(!failed_);
  const std::string name = in_place() ? path_.string() : part_path().string();
  try {
    WriteAll(file_, lines, IsStandardOutput(path_) ? "standard output" : name);
  } catch (const Error&) {
    failed_ = true;
    // Best effort: the write's own error is the one to report.
    if (!in_place() && ::ftruncate(file_.get(), num_bytes_) == 0)
      ::lseek(file_.get(), num_bytes_, SEEK_SET);
    throw;
  }
  num_bytes_ += static_cast<int64_t>(lines.size());
  if (hash_) XXH3_64bits_update(hash_.get(), lines.data(), lines.size());
}

void OutputFile::ResumeAhead() {
  if (!Exists(ahead_name_)) return;
  const std::string name = ahead_path().string();
  Descriptor file = place_.Open(ahead_name_, O_RDWR);
  if (!file.valid()) ThrowPathError(name);
  AheadContent content = ParseAhead(ReadRecords(file, name), run_digest_);
  if (content.header_bytes == 0) return RemoveStale(ahead_path(), IsAhead);
  ahead_.emplace(std::move(file), name, content);
  ahead_found_ = std::move(content.answers);
}

void OutputFile::KeepAhead(int64_t line, std::string_view answer) {
  if (!journal_) return;
  SPILLWAY_CHECK(!failed_);
  failed_ = true;
  if (!ahead_) ahead_.emplace(Create(ahead_path()), ahead_path().string(), run_digest_);
  ahead_->Append(line, answer);
  failed_ = false;
}

void OutputFile::SyncAhead() {
  if (!ahead_) return;
  failed_ = true;
  ahead_->Sync();
  failed_ = false;
}

void OutputFile::ForgetAhead() {
  if (ahead_ && !ahead_->empty()) ahead_->Clear();
}

void OutputFile::Sync() {
  if (in_place()) return;
  SPILLWAY_CHECK(!failed_);
  failed_ = true;
  spillway::Sync(file_, part_path().string());
  failed_ = false;
}

void OutputFile::Commit(int64_t lines) {
  Sync();
  if (!journal_) return;
  failed_ = true;
  journal_->Append({lines, num_bytes_, XXH3_64bits_digest(hash_.get())});
  failed_ = false;
}

void OutputFile::Finish() {
  SPILLWAY_CHECK(!moved_);
  moved_ = true;
  if (in_place()) return;
  Sync();
  if (!place_.Move(replaces_ ? ExistingFile::kReplace : ExistingFile::kKeep)) {
    const bool exists = errno == EEXIST;
    throw Error(exists ? ErrorCode::kOutputExists : ErrorCode::kIo,
                fmt::format("{}: cannot be put in place: {}; the lines are in {}",
                            Printable(path_.string()), std::strerror(errno),
                            Printable(place_.part_name())));
  }
  spillway::Sync(place_.folder(), path_.string());
  if (!is_marked_) journal_.reset();  // it stays
  RemoveRecords();
}

std::filesystem::path OutputFile::part_path() const {
  return in_place() ? std::filesystem::path() : PartPathOf(path_);
}

std::filesystem::path OutputFile::journal_path() const { return JournalPathOf(path_); }

std::filesystem::path OutputFile::ahead_path() const { return path_.string() + ".ahead"; }

}  // namespace spillway
