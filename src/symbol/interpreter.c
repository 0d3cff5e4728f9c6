/* SPDX-License-Identifier: BSD-2-Clause */
#include "symbol/interpreter.h"

#include <stddef.h>
#include <string.h>

/* What their names begin with: compilers append to them. What a user asks for by its own name (sorting, importing,
 * waiting for a lock, the collector, regular expressions) is not among them. */
static const char *const machinery[] = {
	/* running code */
	"_PyEval_", "PyEval_", "_TAIL_CALL_", "_Py_trampoline", "py_trampoline", "eval_frame_handle",
	"_PyFunction_", "function_code_fastcall", "gen_send_ex", "gen_iternext", "gen_send", "gen_close",
	"_gen_throw", "gen_throw", "_PyGen_", "PyIter_Send", "coro_wrapper_", "coro_send",
	"async_gen_", "PyObject_GetIter", "PyIter_Next",
	/* calling */
	"_PyObject_Call", "PyObject_Call", "_PyObject_Vectorcall", "PyObject_Vectorcall",
	"_PyObject_VectorcallTstate", "_PyObject_MakeTpCall", "_PyObject_FastCall", "object_vacall",
	"_PyVectorcall_", "PyVectorcall_", "vectorcall_", "method_vectorcall", "method_call",
	"function_call", "cfunction_vectorcall", "cfunction_call", "_PyCFunction_", "_PyMethodDef_",
	"_PyMethodDescr_", "wrapper_call", "wrapperdescr_", "classmethoddescr_", "call_function",
	"do_call_core", "slot_", "vectorcall_method", "vectorcall_maybe", "type_call", "call_attribute",
	"property_descr_get", "partial_call", "partial_vectorcall", "bounded_lru_cache_wrapper",
	"lru_cache_call", "context_run", "builtin_exec", "builtin_eval", "builtin___build_class__",
	"_PyObject_GenericGetAttr", "PyObject_GetAttr",
	/* starting */
	"run_mod", "run_eval_code_obj", "pyrun_", "_PyRun_", "PyRun_", "pymain_", "Py_RunMain",
	"Py_BytesMain", "Py_Main", "thread_run", "t_bootstrap", "pythread_wrapper",
};

/* What CPython's perf trampoline calls the stand-ins of Python functions (-X perf, 3.12 and later). */
#define STAND_IN "py::"

static bool is_machinery(const char *function)
{
	for (size_t i = 0; i < sizeof(machinery) / sizeof(machinery[0]); i++)
		if (!strncmp(function, machinery[i], strlen(machinery[i])))
			return true;
	return false;
}

bool interpreter_hides(enum frame_role role, const char *function)
{
	switch (role) {
	case FRAME_EVALUATES:
		return true;
	case FRAME_OF_RUNTIME:
		return !function || is_machinery(function);
	case FRAME_GENERATED:
		return function && !strncmp(function, STAND_IN, strlen(STAND_IN));
	default:
		return false;
	}
}

bool interpreter_hides_inlined(enum frame_role role, const char *function)
{
	return (role == FRAME_EVALUATES || role == FRAME_OF_RUNTIME) && function && is_machinery(function);
}
