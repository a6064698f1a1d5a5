// ChatTemplates: the templates of one run, each read when the first conversation needs it, so that
// a run without conversations asks nothing of them.
// Thread rule: const methods from any thread.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "src/chat/chat_prompt.h"
#include "src/chat/template_sources.h"

namespace spillway {

class ChatTemplates {
 public:
  // `given` (--chat-template) is the name of one of the folder's templates or a file of one or of
  // several, which stand for the folder's; empty:
  // the folder's, where conversations with tools take "tool_use" if there is one, others "default".
  // `now` is what strftime_now tells. An empty folder has no templates.
  // Throws: Error kFlag for a `given` that is neither, or has no default; as ReadTemplateSources.
  ChatTemplates(const std::filesystem::path& folder, const std::string& given, const std::tm& now);

  // The template of a conversation; null: there is none.
  // Throws: Error kTokenizer for a template that cannot be read, with its line and what is wrong.
  // Lifetime: this object's.
  const ChatTemplate* For(bool has_tools) const;

  // Tells whether a template that conversations may take tells the time.
  bool TellsTime() const;

  // Texts that decide what conversations become: templates and special tokens.
  std::string Identity() const;

  // Names of the templates, joined by commas, the first of many; empty: there are none. For
  // messages.
  std::string Names() const;

 private:
  const std::string* SourceFor(bool has_tools) const;

  TemplateSources sources_;
  jinja::DictPtr special_tokens_;
  std::tm now_;
  std::string chosen_;  // name of the one that all conversations take; empty: the folder's rule
  mutable std::mutex mutex_;
  mutable std::map<const std::string*, ChatTemplate> read_;  // by source
};

}  // namespace spillway
