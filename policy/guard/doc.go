// Package guard evaluates expressions over a call: conditions on it (`when`), on its result (`outcomes`), and what
// registers are set to (`set`). Expressions are compiled at load, with all that is wrong with them, and are pure:
// the same call has the same value, within a bounded time. An expression without a value is an error, and an error
// permits nothing.
//
// # The language
//
// Expressions are those of CEL, the Common Expression Language (https://cel.dev), with its standard functions:
//
//	args.amount <= 100
//	args.path in registers.reads
//	words(args.command).size() > 0
//	result.structuredContent.failed > 0
//	has(args.force) ? args.force == false : true
//	args.items.size() > 0 && args.items.all(i, i.price < 10)
//
// They see:
//
//	args       the arguments, by constant paths: args.path, args["a-b"], args.items[0].id
//	name       the tool's name
//	registers  the run's registers, by name: registers.plan
//	run        run.state; run.began and run.entered, which are times
//	who        who.subject, who.issuer, who.scopes; claims by constant paths: who.claims.team
//	now        the time
//	result     in outcomes and values alone: isError, structuredContent, content, text, contents, messages
//
// result.isError is always a boolean: false only if it is absent, false or null. result.text is the texts of content,
// with line breaks between them.
//
// # Types
//
// Numbers of JSON are doubles. They compare with ints (args.n <= 100), and do not combine with them: write
// args.n + 1.0. A number beyond 2^53 is an error, however it is written, since doubles leave out integers there.
// Counters are ints. A text is converted to no number and no boolean, so "100" is not 100.
//
// To read what is missing or unset is an error; has(args.x), has(args.`a-b`) and has(registers.x) ask. What is null is
// there.
// A path has no type until it is read, so == between values of two types is false, and != is true: of a list
// where a text was meant, args.x != "a" holds. Say the type first: type(args.x) == string && args.x != "a". Compile
// warns (guard-negation). A comparison by <, a text's function, words, path_under and membership in a register are
// errors of any other type. all holds of what is empty: say args.list.size() > 0 too (guard-all).
//
// || and && have a value if one side decides, even if the other is an error, and exists likewise: an error is passed
// over by what is true beside it. Where that would permit, ask by has() or type() first. A guard is no check of
// a password: how long it takes tells how much was right.
//
// # Names that some servers mix up
//
// A name that stands twice in an object on the way of a path, or beside one that differs from it in case alone
// or in letters that are taken for one another, is an error that nothing passes over: UnclearKey in arguments (the
// request is wrong, -32600), NotEvaluable in a result or in claims. Within a value, it is one where the name is looked up.
//
// # Functions of our own
//
//   - words(t): the words of a text of ASCII letters, digits and _@+=:,./- with spaces between. Anything else is an
//     error, and so is a first word like NAME=value: what is left is one plain command to a shell.
//   - host(u): the host of an absolute URL of http or https, in lower case. An error for all that some read as a URL
//     with another host: a user, another scheme, \, %, a space, a control, characters beyond ASCII, a dot at the end,
//     addresses that are not four numbers with dots.
//   - path_under(p, root): whether an absolute path is root or beneath it. An error for a segment . or .., for //, %,
//     a backslash, controls, a relative path, and where it depends on the file system: upper and lower case,
//     characters beyond ASCII, ~, :, a dot or space at a name's end. So !path_under(p, root) is safe. It can't know
//     symbolic links, mounts, or what the server joins to the path.
//   - json(t): the value of a text, read strictly.
//   - texts(args), texts(args.x): every text in it, names too.
//   - digest(args), digest(args.x): SHA-256 in hexadecimal of the value without spaces, with sorted names, texts in one
//     spelling, numbers as they are written: 1 and 1.0 differ.
//
// # Bounds
//
// An expression has at most 2 KiB and reads at most 64 places; a policy has 2,000. all, exists, exists_one, map and
// filter stand within each other twice. A regular expression is a literal, of at most 1,000 instructions. Of
// the paths that are read 64 KiB are decoded, with a result 1 MiB (TooLarge); what else is in the arguments is gone
// over, and not counted. An evaluation costs at most 100,000 units (CostExceeded): a unit is about a step, or ten
// bytes of text that is made, or forty that are gone over.
//
// There are no extension libraries, no messages, and no time zones by name: hours are UTC's.
//
// # How it is made
//
// Each place that an expression reads is made a variable of its own before CEL checks types, so CEL gets no value
// but those, and a whole document never. One scan of each document finds the places. A call's cost is worked out
// here, by its values: CEL's tracker goes by overload, which it does not know for a path, and charges after the work.
package guard
