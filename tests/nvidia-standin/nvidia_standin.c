// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Stands in for the NVIDIA driver in the virtual machines the tests run in: its major, the names of its entry
 * points, the layout of its control call, and a real mutex that an ioctl holds for as long as it is told.
 * No line of the real driver is in here.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#define MAJOR_NVIDIA 195
#define RM_CONTROL 0x2a
#define XFER 0xd3

/* What a call does, in `how`. */
enum {
	RETURNS = 0,
	HOLDS_LOCK = 1, /* takes the lock, sleeps with it, lets go */
	SLEEPS = 2, /* sleeps without the lock */
	SERVES_FAULTS = 3, /* keeps the bottom half busy; does not wait for it */
};

/* As long as NVOS54, with its command at byte 8. */
struct call {
	u32 client;
	u32 object;
	u32 cmd;
	u32 how;
	u64 us;
	u32 size;
	u32 status;
};

struct xfer {
	u32 cmd;
	u32 size;
	u64 ptr;
};

static DEFINE_MUTEX(lock);
static DECLARE_WAIT_QUEUE_HEAD(never);
static DECLARE_WAIT_QUEUE_HEAD(faults);
static atomic64_t faults_us;
static struct task_struct *bottom_half;
static int uvm_major;

static void sleep_us(u64 us)
{
	if (us)
		wait_event_interruptible_timeout(never, false, usecs_to_jiffies(us));
}

static noinline long serve(const struct call *call)
{
	switch (call->how) {
	case RETURNS:
		return 0;
	case HOLDS_LOCK:
		mutex_lock(&lock);
		sleep_us(call->us);
		mutex_unlock(&lock);
		return 0;
	case SLEEPS:
		sleep_us(call->us);
		return 0;
	case SERVES_FAULTS:
		atomic64_add(call->us, &faults_us);
		wake_up(&faults);
		return 0;
	default:
		return -EINVAL;
	}
}

static noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct call call;
	struct xfer xfer;

	if (_IOC_NR(cmd) == XFER) {
		if (copy_from_user(&xfer, (void __user *)arg, sizeof(xfer)))
			return -EFAULT;
		arg = (unsigned long)xfer.ptr;
	}
	if (copy_from_user(&call, (void __user *)arg, sizeof(call)))
		return -EFAULT;
	return serve(&call);
}

static noinline long uvm_unlocked_ioctl_entry(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct call call;

	if (copy_from_user(&call, (void __user *)arg, sizeof(call)))
		return -EFAULT;
	return serve(&call);
}

static int serve_faults(void *unused)
{
	while (!kthread_should_stop()) {
		ktime_t until;

		wait_event_interruptible(faults, kthread_should_stop() || atomic64_read(&faults_us) > 0);
		until = ktime_add_us(ktime_get(), atomic64_xchg(&faults_us, 0));
		while (ktime_before(ktime_get(), until) && !kthread_should_stop()) {
			cpu_relax();
			cond_resched();
		}
	}
	return 0;
}

static const struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
};

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
};

static int __init standin_init(void)
{
	int err = register_chrdev(MAJOR_NVIDIA, "nvidia", &nvidia_fops);

	if (err)
		return err;
	uvm_major = register_chrdev(0, "nvidia-uvm", &uvm_fops);
	if (uvm_major < 0) {
		err = uvm_major;
		goto no_uvm;
	}
	bottom_half = kthread_run(serve_faults, NULL, "UVM GPU%u BH", 1);
	if (IS_ERR(bottom_half)) {
		err = PTR_ERR(bottom_half);
		goto no_thread;
	}
	return 0;

no_thread:
	unregister_chrdev(uvm_major, "nvidia-uvm");
no_uvm:
	unregister_chrdev(MAJOR_NVIDIA, "nvidia");
	return err;
}

static void __exit standin_exit(void)
{
	kthread_stop(bottom_half);
	unregister_chrdev(uvm_major, "nvidia-uvm");
	unregister_chrdev(MAJOR_NVIDIA, "nvidia");
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_DESCRIPTION("Stands in for the NVIDIA driver in tests");
MODULE_LICENSE("Dual MIT/GPL");
