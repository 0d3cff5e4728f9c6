/* SPDX-License-Identifier: BSD-2-Clause */
/* An extension module for known_stacks.py: C functions with a name of their own between two Python functions. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, used))
#define NOT_A_TAIL_CALL __asm__ volatile("")

PyObject *known_middle(PyObject *function, int depth);
void known_wait(int fd);
uint64_t known_spin(uint64_t n);

NOINLINE PyObject *known_middle(PyObject *function, int depth)
{
	PyObject *ret;

	if (depth > 0)
		ret = known_middle(function, depth - 1);
	else
		ret = PyObject_CallObject(function, NULL);
	NOT_A_TAIL_CALL;
	return ret;
}

NOINLINE void known_wait(int fd)
{
	char c;

	while (read(fd, &c, 1) > 0)
		;
	NOT_A_TAIL_CALL;
}

NOINLINE uint64_t known_spin(uint64_t n)
{
	volatile uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += i * i;
	return sum;
}

/* call(function, depth): calls the function below depth + 1 frames of known_middle. */
static PyObject *call(PyObject *self, PyObject *args)
{
	PyObject *function;
	int depth;

	(void)self;
	if (!PyArg_ParseTuple(args, "Oi", &function, &depth))
		return NULL;
	return known_middle(function, depth);
}

/* wait(fd): reads until it ends, without the interpreter lock. */
static PyObject *wait_for(PyObject *self, PyObject *args)
{
	int fd;

	(void)self;
	if (!PyArg_ParseTuple(args, "i", &fd))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	known_wait(fd);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

/* spin(n, keep): computes, with the interpreter lock if keep. */
static PyObject *spin(PyObject *self, PyObject *args)
{
	unsigned long long n, sum;
	int keep;

	(void)self;
	if (!PyArg_ParseTuple(args, "Kp", &n, &keep))
		return NULL;
	if (keep)
		return PyLong_FromUnsignedLongLong(known_spin(n));
	Py_BEGIN_ALLOW_THREADS
	sum = known_spin(n);
	Py_END_ALLOW_THREADS
	return PyLong_FromUnsignedLongLong(sum);
}

static PyMethodDef methods[] = {
	{"call", call, METH_VARARGS, "Calls a function from C."},
	{"wait", wait_for, METH_VARARGS, "Waits in C."},
	{"spin", spin, METH_VARARGS, "Computes in C."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT, "known_extension", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_known_extension(void)
{
	return PyModule_Create(&module);
}
